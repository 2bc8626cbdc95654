package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

const (
	// maxFileBytes is far above any real file and keeps a mistaken path, such
	// as a device, from filling the memory.
	maxFileBytes = 1 << 20
	// maxDepth bounds nesting. The parser recurses, with a cost that is
	// quadratic in the depth.
	maxDepth = 100
	// maxTokens is some 15,000 lines. The parser's cost is quadratic in the
	// entries of a mapping, too: minutes for a hostile file of maxFileBytes.
	maxTokens = 50_000
)

// Load reads the file at path and applies set, as [Parse] does. An empty path
// means no file: the defaults, and set.
func Load(path string, set []string) (*Config, error) {
	if path == "" {
		return Parse("", nil, set)
	}
	data, err := readFile(path)
	if err != nil {
		hint := "check the path and the permissions"
		if errors.Is(err, fs.ErrNotExist) {
			hint = "check the path; only without -c do the defaults apply"
		}
		return nil, &Error{File: path, Msg: "cannot read the configuration: " + osReason(err), Hint: hint, cause: err}
	}
	return Parse(path, data, set)
}

// Parse reads a configuration over the defaults, then applies the overrides in
// set, each of the form key.path=value, and validates the result. The name is
// used in messages only. The value of an override is YAML on one line, except
// that a text field takes it as it stands unless it is quoted.
func Parse(name string, data []byte, set []string) (*Config, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // a byte order mark
	c := Default()
	c.prov = &provenance{src: newSource(name, data), at: map[string]place{}}
	d := &decoder{prov: c.prov}

	body, err := parseYAML(c.prov.src, data)
	if err != nil {
		return nil, err
	}
	if body != nil {
		if err := checkAPIVersion(d, body); err != nil {
			return nil, err
		}
		d.document(&c, body)
	}
	errs := d.errs
	for _, s := range set {
		errs = append(errs, c.applySet(s)...)
	}
	if len(errs) > 0 {
		return nil, join(errs)
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &c, nil
}

// parseYAML returns the top node of the only document, nil if it is empty.
func parseYAML(src *source, data []byte) (body ast.Node, err error) {
	for line, i := 1, 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return nil, &Error{File: src.name, Line: line, Column: 1, Msg: "the text is not UTF-8", Hint: "save the file as UTF-8"}
		}
		if r == '\r' && !bytes.HasPrefix(data[i+1:], []byte("\n")) { // YAML's line numbers would not be an editor's
			return nil, &Error{File: src.name, Line: line, Column: 1, Msg: "a carriage return without a line feed", Hint: "save the file with Unix or Windows line endings"}
		}
		if r == '\n' {
			line++
		}
		i += size
	}
	// The parser is not ours; a bug in it must be an error like any other.
	defer func() {
		if r := recover(); r != nil {
			body, err = nil, &Error{File: src.name, Msg: "the YAML parser failed on this file", Hint: "simplify the file, and report this as a bug"}
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if len(tokens) > maxTokens {
		return nil, src.errorAt(tokens[maxTokens], "", "the file is too long", fmt.Sprintf("a configuration has at most %d names, values and punctuation marks", maxTokens))
	}
	if t := tooDeep(tokens); t != nil {
		return nil, src.errorAt(t, "", fmt.Sprintf("nested more than %d levels deep", maxDepth), "")
	}
	// Duplicate keys are left to the decoder, which reports all of them.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, syntaxError(src, err)
	}
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.DirectiveType || doc.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			return nil, src.errorAt(firstToken(doc.Body), "", "a second YAML document", "keep one document per file")
		}
		body = doc.Body
	}
	return body, nil
}

// tooDeep returns the token at which collections nest deeper than maxDepth.
// Only flow collections and lists begun on one line are counted: other block
// collections need indentation, which maxFileBytes bounds well enough.
func tooDeep(tokens token.Tokens) *token.Token {
	flow, run := 0, 0
	for _, t := range tokens {
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow--
		}
		// "- - - x" is a list in a list in a list.
		if t.Type == token.SequenceEntryType || t.Type == token.MappingKeyType {
			run++
		} else {
			run = 0
		}
		if flow > maxDepth || run > maxDepth {
			return t
		}
	}
	return nil
}

// syntaxError gives the parser's message our form.
func syntaxError(src *source, err error) *Error {
	var ye yaml.Error
	if !errors.As(err, &ye) {
		return &Error{File: src.name, Msg: err.Error()}
	}
	src.hideHeaders() // where a value begins and ends is not known here
	e := src.errorAt(ye.GetToken(), "", ye.GetMessage(), "")
	if strings.Contains(e.Msg, "\t") || strings.Contains(e.Msg, "tab character") {
		src.aboutTab(e)
	} else if e.Line > 0 && e.Line <= len(src.lines) && strings.Contains(src.lines[e.Line-1], "${env:") {
		e.Hint = `inside [...] and {...} put the reference in quotes: "${env:NAME}"`
	}
	return e
}

// checkAPIVersion comes before everything else: in a file of another format
// all other complaints would only be noise.
func checkAPIVersion(d *decoder, body ast.Node) error {
	m, ok := body.(ast.MapNode)
	if !ok {
		return nil
	}
	for it := m.MapRange(); it.Next(); {
		s, ok := it.Value().(*ast.StringNode)
		if !ok || keyText(it.Key()) != "apiVersion" || s.Value == APIVersion {
			continue
		}
		return d.prov.src.errorAt(firstToken(s), "apiVersion", fmt.Sprintf("%q is not a format this version reads", clip(s.Value)),
			"write apiVersion: "+APIVersion+", or use the release that the file was written for")
	}
	return nil
}

// readNamed reads a file that the configuration names, as readFile does. It has to be a
// regular file: opening a pipe could block for ever, and with it a stream and the shutdown.
func readNamed(path string) ([]byte, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a file")
	}
	return readFile(path)
}

// readFile reads a file of at most maxFileBytes.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading: nothing is lost
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("more than %s", Bytes(maxFileBytes))
	}
	return data, nil
}

// osReason drops the operation and the path, which the message already has.
func osReason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}
