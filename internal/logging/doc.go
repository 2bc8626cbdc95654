// Package logging is how the relay writes its log: as JSON for machines or as text for
// people, with a level that can be changed while it runs, and so that a storm of equal
// lines cannot fill a disk.
//
// It owns the forms, the level, the sampling, and how much of names and versions a line shows. The messages and their levels belong to
// the callers.
//
// Limitations: lines count as equal by level, message and a few attributes of bounded
// variety (sampledBy); of the lines that are held back only the number and the latest of
// each kind are written. Debug lines are not sampled, since whoever sets that level wants
// all of them.
package logging
