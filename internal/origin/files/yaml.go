package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"sort"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// yamlJSON is a YAML file as JSON, on one line and in ASCII, so that a column of it is an offset. marks say what
// stands where in the YAML. It is read with another library than the configuration: that one takes half as long
// again for 10,000 clusters, and twice the memory.
type yamlJSON struct {
	path   string
	json   []byte
	marks  []mark // in order
	items  []Place
	within map[*yaml.Node]bool // what is being written, for aliases that contain themselves
	most   int
	depth  int
}

// mark says where what begins at an offset of the JSON stands in the YAML.
type mark struct{ offset, line, column int }

// toJSON converts a YAML file, and refuses what has no meaning in JSON.
func toJSON(path string, data []byte, most int) (*yamlJSON, error) {
	if !utf8.Valid(data) {
		return nil, &mistake{1, 1, "is not UTF-8; save it as such"}
	}
	in := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	switch err := in.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("holds nothing; for a type without resources write its type_url and resources: []")
	case err != nil:
		return nil, yamlMistake(data, err)
	}
	switch err := in.Decode(&second); {
	case err == nil:
		return nil, atNode(&second, "a second YAML document begins here; keep one in a file")
	case !errors.Is(err, io.EOF):
		return nil, yamlMistake(data, err)
	}
	y := &yamlJSON{path: path, within: make(map[*yaml.Node]bool), most: most}
	return y, y.write(document.Content[0])
}

var (
	yamlLine    = regexp.MustCompile(`^yaml: (?:line (\d+): )?`) // is how the parser begins an error
	yamlAnchor  = regexp.MustCompile(`unknown anchor '(.*)' referenced`)
	tabIndented = regexp.MustCompile(`(?m)^ *\t`)
)

// yamlMistake is the parser's error at the first character of the line that it names, or where its cause is known better.
func yamlMistake(data []byte, err error) error {
	m := yamlLine.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	text := err.Error()[len(m[0]):]
	if a := yamlAnchor.FindStringSubmatch(text); a != nil {
		return at(data, bytes.Index(data, []byte("*"+a[1])), "is an alias of an anchor that does not stand before it; quote a value that begins with *")
	}
	line, _ := strconv.Atoi(m[1]) // they are digits, or none
	lines := bytes.SplitAfter(data, []byte("\n"))
	before := bytes.Join(lines[:max(0, min(line, len(lines))-1)], nil)
	if tab := tabIndented.FindIndex(data[len(before):]); tab != nil {
		return at(data, len(before)+tab[1]-1, "is indented with a tab; YAML wants spaces")
	}
	rest := data[len(before):]
	return at(data, len(data)-len(bytes.TrimLeft(rest, " ")), text)
}

// atNode is a mistake at a node.
func atNode(n *yaml.Node, format string, args ...any) error {
	return &mistake{n.Line, n.Column, fmt.Sprintf(format, args...)}
}

// write appends a node as JSON.
func (y *yamlJSON) write(n *yaml.Node) error {
	y.depth++
	defer func() { y.depth-- }()
	switch {
	case y.depth > maxDepth:
		return atNode(n, "nests more than %d deep", maxDepth)
	case len(y.json) > y.most:
		return atNode(n, "with its aliases the file has more than upstream.files.max_bytes (%d bytes)", y.most)
	case n.Style&yaml.TaggedStyle != 0:
		return atNode(n, "has a tag, which JSON has not; write the value without it")
	}
	y.mark(n)
	switch n.Kind {
	case yaml.MappingNode:
		return y.mapping(n)
	case yaml.SequenceNode:
		y.text("[")
		for i, item := range n.Content {
			if i > 0 {
				y.text(",")
			}
			if err := y.write(item); err != nil {
				return err
			}
		}
		y.text("]")
		return nil
	case yaml.AliasNode:
		if y.within[n.Alias] {
			return atNode(n, "the alias *%s contains itself", n.Value)
		}
		y.within[n.Alias] = true
		defer delete(y.within, n.Alias)
		return y.write(n.Alias)
	default:
		return y.scalar(n)
	}
}

// mark notes where a node stands whose JSON comes next.
func (y *yamlJSON) mark(n *yaml.Node) { y.marks = append(y.marks, mark{len(y.json), n.Line, n.Column}) }

func (y *yamlJSON) text(s string) { y.json = append(y.json, s...) }

func (y *yamlJSON) mapping(n *yaml.Node) error {
	y.text("{")
	seen := make(map[string]*yaml.Node, len(n.Content)/2) // keys and values
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			return atNode(key, "is no plain key; write the name of a field")
		}
		if before := seen[key.Value]; before != nil {
			return atNode(key, "the key %q stands at %d:%d, too; keep one", key.Value, before.Line, before.Column)
		}
		seen[key.Value] = key
		if i > 0 {
			y.text(",")
		}
		y.mark(key)
		y.quote(key.Value)
		y.text(":")
		if listsItems(y.depth, key.Value) {
			for i, item := range value.Content {
				y.items = append(y.items, Place{File: y.path, Line: item.Line, Column: item.Column, Item: i})
			}
		}
		if err := y.write(value); err != nil {
			return err
		}
	}
	y.text("}")
	return nil
}

func (y *yamlJSON) scalar(n *yaml.Node) error {
	switch n.ShortTag() {
	case "!!null":
		y.text("null")
		return nil
	case "!!bool":
		var is bool
		if err := n.Decode(&is); err != nil { // "yes" is one for a bool only
			y.quote(n.Value)
			return nil //nolint:nilerr // it is text
		}
		y.text(strconv.FormatBool(is))
		return nil
	case "!!int", "!!float":
		return y.number(n)
	default:
		y.quote(n.Value)
		return nil
	}
}

func (y *yamlJSON) number(n *yaml.Node) error {
	var value any
	if err := n.Decode(&value); err != nil {
		return atNode(n, "is no number that JSON has")
	}
	switch v := value.(type) {
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return atNode(n, "is no number that JSON has")
		}
		y.text(strconv.FormatFloat(v, 'g', -1, 64))
	default:
		y.text(fmt.Sprint(v))
	}
	return nil
}

// quote appends a string in ASCII, so that columns are offsets.
func (y *yamlJSON) quote(s string) {
	quoted, _ := json.Marshal(s) // a string never fails
	for _, r := range string(quoted) {
		switch {
		case r < utf8.RuneSelf:
			y.json = append(y.json, byte(r))
		case r > math.MaxUint16:
			const base, high, low, bits = 0x10000, 0xD800, 0xDC00, 10
			y.text(fmt.Sprintf(`\u%04x\u%04x`, high+(r-base)>>bits, low+(r-base)&(1<<bits-1)))
		default:
			y.text(fmt.Sprintf(`\u%04x`, r))
		}
	}
}

// back gives an error of protojson the place in the YAML.
func (y *yamlJSON) back(err error) error {
	if err == nil {
		return nil
	}
	m := (*mistake)(nil)
	if err = positioned(err); !errors.As(err, &m) || len(y.marks) == 0 {
		return err
	}
	i := sort.Search(len(y.marks), func(i int) bool { return y.marks[i].offset >= m.column }) - 1
	i = max(i, 0)
	return &mistake{y.marks[i].line, y.marks[i].column, m.text}
}
