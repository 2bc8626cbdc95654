package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
)

// WriteJSON writes a value as JSON, in which what could steer a terminal is escaped.
func WriteJSON(w io.Writer, v any) error {
	data, err := safeJSON(v)
	if err == nil {
		_, err = w.Write(append(data, '\n'))
	}
	return err
}

// WriteYAML writes what WriteJSON does as YAML.
func WriteYAML(w io.Writer, v any) error {
	data, err := safeJSON(v)
	if err != nil {
		return err
	}
	if data, err = yaml.JSONToYAML(data); err != nil {
		return err
	}
	_, err = w.Write(escaped(data))
	return err
}

func safeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return escaped(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

// escaped replaces what may not be printed, other than the ends of lines, by \u escapes. In JSON that can only stand in
// strings.
func escaped(data []byte) []byte {
	if bytes.IndexFunc(data, steers) < 0 {
		return data
	}
	var b bytes.Buffer
	for _, r := range string(data) {
		switch {
		case !steers(r):
			b.WriteRune(r)
		case r > 0xFFFF:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}

func steers(r rune) bool { return r != '\n' && r != utf8.RuneError && hidden(r) }
