"""The folder from which Python imports first in a script that is watched."""
