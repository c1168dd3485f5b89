"""What a user is meant to read."""


class BadInput(ValueError):
    """Something the caller gave is wrong; the message says what, what was expected and what to do.

    `carry` prints the message on one line and exits with 2. In Python it is a plain `ValueError`, which a notebook
    shows as this line alone.
    """

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback."""
        return [f"{type(self).__name__}: {self}"]
