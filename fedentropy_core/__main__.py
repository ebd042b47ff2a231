"""The command `fedentropy`, or python -m fedentropy_core."""

from fedentropy_core.cli import main
from fedentropy_core.interrupts import ignore


def command() -> None:
    try:
        main()
    finally:
        ignore()  # Python takes a while to end, and the exit code is settled


if __name__ == "__main__":
    command()
