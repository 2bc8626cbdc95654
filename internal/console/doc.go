// Package console puts what a relay says into a form for people at a terminal: tables, times as they are spoken of, JSON
// and YAML for scripts, and the differences of two resources field by field.
//
// Names, node ids and messages come from clients and control planes. Nothing of them reaches the terminal that could
// steer it: control characters, and those that change the direction of writing, are shown as escapes. The package is
// pure: it asks nobody, and takes the time from its caller. Limitation: it knows no colours, so that NO_COLOR needs no
// attention.
package console
