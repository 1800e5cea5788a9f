package testserver

// RemoveSegment gives back the shared memory that a PostgreSQL server left whose test binary was killed.
var RemoveSegment = removeSegment
