"""What every other package uses and no package owns: files, tables, names, seeds, records of
results. Nothing in here imports another package of Colonnade, nor torch when it is imported."""
