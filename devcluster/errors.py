"""The one error that the command line turns into a plain message."""


class DevClusterError(Exception):
    """Something the user can act on: the text names what failed and the way out."""
