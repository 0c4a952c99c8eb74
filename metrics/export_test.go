package metrics

// Table is the list of all metrics as README.md has it.
var Table = table
