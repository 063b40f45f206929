"""The page of a run or of a comparison: exported, shown, or as text for a server."""
