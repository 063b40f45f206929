"""Pictures of a run in the layout of its page, without a browser: SVG, PNG, PDF."""
