from fedentropy_core.cli import main
from fedentropy_core.interrupts import ignore

if __name__ == "__main__":
    try:
        main()
    finally:
        ignore()  # Python takes a while to end, and the exit code is settled
