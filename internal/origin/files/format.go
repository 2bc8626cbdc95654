package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/readable"
	"github.com/xds-relay/xds-relay/internal/xdsjson"
)

// format is how a file is written.
type format uint8

const (
	asJSON format = iota
	asYAML
	asText
	asBinary
)

// formats are the suffixes that Envoy knows (FS-2).
var formats = map[string]format{
	".json": asJSON, ".yaml": asYAML, ".yml": asYAML, ".pb": asBinary,
	".pb_text": asText, ".textproto": asText, ".txtpb": asText,
}

// formatOf is the format that a name stands for. A file with another name is JSON.
func formatOf(name string) format { return formats[strings.ToLower(filepath.Ext(name))] }

// known reports whether a name has the suffix of a format.
func known(name string) bool {
	_, ok := formats[strings.ToLower(filepath.Ext(name))]
	return ok
}

// decoded is what one file holds.
type decoded struct {
	path      string
	format    format
	typeURL   cache.TypeURL
	resources []*anypb.Any
	list      string  // the field that has them, if it is not resources
	places    []Place // of the resources, as far as the format has any
	types     *readable.Set
}

// place is where a resource stands.
func (d *decoded) place(i int) Place {
	if i < len(d.places) {
		return d.places[i]
	}
	return Place{File: d.path, List: d.list, Item: i}
}

// decode reads a file: one DiscoveryResponse (FS-1), or the list collection in its place (FS-11).
func decode(path string, data []byte, types *readable.Set, most int) (*decoded, error) {
	d := &decoded{path: path, format: formatOf(path), types: types}
	response := new(discovery.DiscoveryResponse)
	var collection *discovery.Resource
	unmarshal, err := d.reader(data, most)
	if err == nil {
		collection, err = d.whole(response, unmarshal)
	}
	if err != nil && strings.HasSuffix(err.Error(), "unexpected EOF") {
		err = at(data, len(data), "ends too early")
	}
	if err != nil {
		return nil, located(path, err)
	}
	if collection != nil {
		return d, d.expand(collection)
	}
	d.resources = response.GetResources()
	if d.typeURL, err = typeOf(response); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// byteOrderMark is what some editors put before UTF-8.
var byteOrderMark = []byte("\uFEFF")

// reader returns what reads a message from the data of a file.
func (d *decoded) reader(data []byte, most int) (func(proto.Message) error, error) {
	resolver := d.types.Resolver()
	asProto := protojson.UnmarshalOptions{Resolver: resolver, RecursionLimit: maxDepth}
	if d.format == asBinary {
		return func(into proto.Message) error {
			if err := (proto.UnmarshalOptions{RecursionLimit: maxDepth, Resolver: resolver}).Unmarshal(data, into); err != nil {
				return errors.New("is no binary DiscoveryResponse, or is cut short")
			}
			return nil
		}, nil
	}
	if bytes.HasPrefix(data, byteOrderMark) {
		return nil, &mistake{1, 1, "begins with a byte order mark; save it as UTF-8 without one"}
	}
	if d.format == asYAML {
		y, err := toJSON(d.path, data, most)
		if err != nil {
			return nil, err
		}
		d.places = y.items
		return func(into proto.Message) error { return y.back(asProto.Unmarshal(y.json, into)) }, nil
	}
	if err := shallow(data); err != nil {
		return nil, err
	}
	if d.format == asText {
		return func(into proto.Message) error {
			return positioned(prototext.UnmarshalOptions{Resolver: resolver}.Unmarshal(data, into))
		}, nil
	}
	d.places = items(d.path, data)
	return func(into proto.Message) error { return positioned(asProto.Unmarshal(data, into)) }, nil
}

// mistake is what is wrong at a place of a file.
type mistake struct {
	line, column int
	text         string
}

// at is a mistake at an offset.
func at(data []byte, offset int, text string) error {
	offset = max(0, min(offset, len(data)))
	before := data[:offset]
	return &mistake{1 + bytes.Count(before, []byte("\n")), offset - bytes.LastIndexByte(before, '\n'), text}
}

func (m *mistake) Error() string { return fmt.Sprintf("%d:%d: %s", m.line, m.column, m.text) }

// position is how protojson and prototext begin an error. The space is a no-break space now and then.
var position = regexp.MustCompile(`^(?:proto:)?[\s\x{a0}]*(?:syntax error )?\(line (\d+):(\d+)\): `)

// positioned takes the position out of an error of protojson or prototext, and leaves out the values that it quotes,
// which may be secrets.
func positioned(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	m := position.FindStringSubmatch(text)
	if m == nil {
		return errors.New(xdsjson.Harmless(strings.TrimLeft(strings.TrimPrefix(text, "proto:"), " \u00a0")))
	}
	line, _ := strconv.Atoi(m[1]) // they are digits
	column, _ := strconv.Atoi(m[2])
	return &mistake{line, column, xdsjson.Harmless(text[len(m[0]):])}
}

// located names the file and the place of an error.
func located(path string, err error) error {
	if m := (*mistake)(nil); errors.As(err, &m) {
		return fmt.Errorf("%s:%w", path, m)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// shallow refuses text whose brackets nest too deep.
func shallow(data []byte) error {
	depth, quote := 0, byte(0)
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote || c == '\n' {
				quote = 0
			}
		case c == '"', c == '\'':
			quote = c
		case c == '{', c == '[', c == '<':
			if depth++; depth > maxDepth {
				return at(data, i, fmt.Sprintf("nests more than %d deep", maxDepth))
			}
		case c == '}', c == ']', c == '>':
			depth--
		}
	}
	return nil
}

// typeOf is the type of a file: what it says, or else what its first resource is (FS-1).
func typeOf(r *discovery.DiscoveryResponse) (cache.TypeURL, error) {
	switch {
	case r.GetTypeUrl() != "":
		return cache.TypeURL(r.GetTypeUrl()), nil
	case len(r.GetResources()) == 0:
		return "", errors.New("has neither type_url nor resources, so that it says nothing; write type_url and resources: []")
	}
	first := r.GetResources()[0]
	if first.GetTypeUrl() == wrapper {
		inner := new(discovery.Resource)
		if err := proto.Unmarshal(first.GetValue(), inner); err != nil {
			return "", errors.New("resources[0] is a Resource that cannot be read")
		}
		first = inner.GetResource()
	}
	return cache.TypeURL(first.GetTypeUrl()), nil
}

// wrapper is the type of a resource that comes with a name of its own.
const wrapper = "type.googleapis.com/envoy.service.discovery.v3.Resource"

// wrap is a resource as a Delta response has it. A TTL is refused: nobody would renew it.
func (d *decoded) wrap(i int, body *anypb.Any) (*discovery.Resource, error) {
	r := &discovery.Resource{Resource: body}
	if body.GetTypeUrl() == wrapper {
		r = new(discovery.Resource)
		if err := proto.Unmarshal(body.GetValue(), r); err != nil {
			return nil, errors.New("is a Resource that cannot be read")
		}
	}
	if err := servable(r); err != nil {
		return nil, err
	}
	of := cache.TypeURL(r.GetResource().GetTypeUrl())
	if of != d.typeURL {
		return nil, fmt.Errorf("is of type %q in a file of type %q; each type has files of its own", string(of), string(d.typeURL))
	}
	if d.format == asBinary {
		if err := d.sound(r.GetResource()); err != nil {
			return nil, err
		}
	}
	if _, ok := cache.NameOf(r); ok {
		return r, nil
	}
	name, ok := cache.BodyName(d.typeURL, r.GetResource().GetValue())
	if !ok || r.GetResourceName() != nil {
		return nil, fmt.Errorf("has no name; give it one, or wrap it as %s with a name", wrapper)
	}
	r.Name = name
	return r, nil
}

// servable refuses what files cannot keep up.
func servable(r *discovery.Resource) error {
	switch {
	case r.GetTtl() != nil:
		return errors.New("has a ttl, which nobody would renew; remove it")
	case len(r.GetAliases()) > 0:
		return errors.New("has aliases, which files do not answer to; remove them, or list the resource under each name")
	}
	return nil
}

// sound refuses a binary body that is no message of its type, if that is known. The other formats were read as such.
func (d *decoded) sound(body *anypb.Any) error {
	t, err := d.types.Resolver().FindMessageByURL(body.GetTypeUrl())
	if err != nil {
		return nil //nolint:nilerr // a type that nobody knows goes through
	}
	if err := (proto.UnmarshalOptions{RecursionLimit: maxDepth}).Unmarshal(body.GetValue(), t.New().Interface()); err != nil {
		return fmt.Errorf("is no %s, or is cut short", Kind(d.typeURL))
	}
	return nil
}

// listsItems reports whether a key of an object at a depth has what is listed in a file: resources, or the entries of a list
// collection (FS-11).
func listsItems(depth int, key any) bool {
	switch depth {
	case 1:
		return key == "resources"
	case 2:
		return key == "entries"
	}
	return false
}

// items are the places of the resources of a JSON file: in resources, or in the entries of a list collection.
func items(path string, data []byte) (places []Place) {
	in := json.NewDecoder(bytes.NewReader(data))
	depth, of := 0, 0  // of is the depth of what is listed
	line, from := 1, 0 // of the last place
	for {
		before := in.InputOffset()
		token, err := in.Token()
		if err != nil {
			return places
		}
		delim, isDelim := token.(json.Delim)
		if depth == of && depth > 0 && token != json.Delim(']') {
			at := int(before) + bytes.IndexAny(data[before:], "{\"[0123456789-tfn")
			line += bytes.Count(data[from:at], []byte("\n"))
			from = at
			places = append(places, Place{File: path, Line: line, Column: at - bytes.LastIndexByte(data[:at], '\n'), Item: len(places)})
		}
		switch {
		case isDelim && (delim == '{' || delim == '['):
			depth++
		case isDelim:
			depth--
		case listsItems(depth, token) && of != depth: // a key, and no item
			of = depth + 1
		case depth < of:
			of = 0
		}
	}
}
