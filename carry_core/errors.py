"""What a user is meant to read."""


class BadInput(ValueError):
    """Something the caller gave is wrong; the message says what, what was expected and what to do.

    `carry` prints the message on one line and exits with 2. In Python it is a plain `ValueError`.
    """


class NotNow(BadInput):
    """Nothing is wrong, but it has to wait: for another process, or for what is to be made before."""
