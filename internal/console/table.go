package console

import (
	"io"
	"strings"
	"unicode/utf8"
)

// Table is rows whose columns stand below each other. Its cells are cleaned when it is written.
type Table struct {
	indent string
	rows   [][]string
}

// NewTable returns a Table with a line of headings, if there are any, and every line indented.
func NewTable(indent string, headings ...string) *Table {
	t := &Table{indent: indent}
	if len(headings) > 0 {
		t.Row(headings...)
	}
	return t
}

// Row adds a row.
func (t *Table) Row(cells ...string) {
	clean := make([]string, len(cells))
	for i, c := range cells {
		clean[i] = Clean(c)
	}
	t.rows = append(t.rows, clean)
}

// Write writes the rows. Two spaces are between columns.
func (t *Table) Write(w io.Writer) error {
	var widths []int
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		line := t.indent
		for i, c := range row {
			line += c + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+2)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
