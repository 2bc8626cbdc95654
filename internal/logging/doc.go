// Package logging is how the relay writes its log: as JSON for machines or as text for
// people, with a level that can be changed while it runs, and so that a storm of equal
// lines cannot fill a disk.
//
// It owns the forms, the level, the sampling, and how much of names and versions a line
// shows, and no words: what is said, and at which level, is the business of who says it. It never writes anything but what it is handed.
//
// Limitations: lines count as equal by level, message and a few attributes of bounded
// variety (sampledBy); a line that is held back is lost except for its number and the latest
// of its kind. Debug lines are not sampled: who asks for them wants them all.
package logging
