// Package memory says when the memory that a process may have is nearly used up, so that it takes in nothing new (VALID-8).
//
// What counts is live memory: the heap that the last garbage collection left, and stacks. RSS and what a cgroup counts
// hold garbage and files, too, and say nothing of what is needed. The package never frees anything, and ends nobody. It
// does not see memory that is asked for between two collections.
package memory
