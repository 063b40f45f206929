"""What ``compare`` does not get right yet: each entry fails as soon as it does, so that the list stays short.

``MISSES``: faults by name, in the modes that miss. ``ALARMS``: equal pairs in which something is found.
"""

from __future__ import annotations

__all__ = ["ALARMS", "BY_ROUNDING", "MISSES"]

MISSES: dict[str, str] = {
    "port-t5/relative-position-backwards": "names the product that the distances are added to, not the distances",
    "port-t5/relative-position-buckets": "the right call; of its steps the last one, not the division",
    "port-vit/patches-column-by-column": "the right call; names where patches are joined, not where they are turned",
    "port-vit/channels-last-within-patches": "names the projection: elements in another order count as the same input",
    "port-llama/rotary-base": "the right call; names where the rotation ends, not the power it begins with",
    "port-mixtral/wrong-expert": "the right call; names the weights of the experts, not how they are taken",
    "port-mixtral/gelu-for-silu": "the reference has all experts in one call: names the body, not the one expert",
    "port-encoder/norm-after": "the reference has the layer in one operation: names the last norm in the port's",
    "swin/relative-positions-transposed": "an index in another order has the same statistics: names what shows it",
    "unet/transposed-kernel": "so has a kernel that is turned: names what shows it; the data tells",
}
# Found or missed by the last digits of a sum, which another order of the same elements changes, or does not.
BY_ROUNDING = ("swin/relative-positions-transposed", "unet/transposed-kernel")
ALARMS: dict[str, str] = {}
