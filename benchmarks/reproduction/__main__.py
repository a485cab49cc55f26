"""Print the tables of runs; see the package."""

from benchmarks.reproduction import main

main()
