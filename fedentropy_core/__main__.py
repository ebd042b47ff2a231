from fedentropy_core.cli import main

if __name__ == "__main__":
    main()
