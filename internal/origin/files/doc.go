// Package files owns resources in files: it reads a directory, or one file, into a set of resources, and reads it again
// when that changes (FS-1 to FS-11).
//
// A load is the whole path, all or nothing: anything that is wrong is one error, with file, line and column, and what
// was loaded before stays. It never writes, never opens what is not a regular file, and never reads what is written in
// place unless it is told to.
//
// Limitations: a directory's subdirectories are not read. A file that is removed takes effect with the next load. What
// is wrong with a binary file has no line, and a resource of a text file is named by its place. Away from Linux, that
// a file was renamed into place cannot be told from a new file that is being written.
package files
