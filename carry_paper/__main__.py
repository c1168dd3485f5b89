"""Start the `carry` command, or say in one line which extra it lacks."""

import sys


def main() -> None:
    """Run the command line, or exit with code 2 if `carry-core[paper]` is not installed."""
    try:
        from carry_paper import cli
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("carry_"):
            raise
        install = "pip install 'carry-core[paper]'"
        print(
            f"`carry` needs the package {error.name}, which is not installed: {install}.",
            file=sys.stderr,
        )
        sys.exit(2)
    cli.main()


if __name__ == "__main__":
    main()
