// Package wire owns the part of the xDS messages that cheap clients need: how to
// read a response as its bytes come, and how to write requests. It never decodes
// a resource: of each it reads the name, the version and the step that made it,
// and passes over the rest. It knows only the fields that the bench needs.
package wire

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Response is what a response says, except its resources. The slices are the
// Scanner's, and good until its next response.
type Response struct {
	TypeURL, Nonce, Version []byte // Version is SotW's
	Resources, Removed      int
	ResourceBytes           int // of the resources, on the wire
}

// Resource is one resource of a response. The slices are good until the next one.
// In a SotW response it has no version of its own.
type Resource struct{ Name, Version, Step []byte }

// slot is where a field is kept.
type slot int

const (
	nowhere slot = iota
	typeURL
	nonce
	responseVersion
	removed
	name
	version
	step
	slots
)

// message says which fields of a message are of interest: they are kept, or looked
// into. All other fields are passed over.
type message struct {
	resource bool
	fields   []field
}

type field struct {
	number protowire.Number
	slot   slot
	into   *message
}

// The messages. A body is a Cluster or a ClusterLoadAssignment: no field of the one
// is another one of the other.
var (
	locality = &message{fields: []field{{number: 3, slot: step}}}
	group    = &message{fields: []field{{number: 1, into: locality}}}
	body     = &message{fields: []field{{number: 28, slot: step}, {number: 2, into: group}}}
	named    = &message{fields: []field{{number: 28, slot: step}, {number: 2, into: group}, {number: 1, slot: name}}}

	deltaResponse = &message{fields: []field{
		{number: 2, into: &message{resource: true, fields: []field{
			{number: 1, slot: version}, {number: 3, slot: name},
			{number: 2, into: &message{fields: []field{{number: 2, into: body}}}},
		}}},
		{number: 4, slot: typeURL}, {number: 5, slot: nonce}, {number: 6, slot: removed},
	}}
	sotwResponse = &message{fields: []field{
		{number: 2, into: &message{resource: true, fields: []field{{number: 2, into: named}}}},
		{number: 1, slot: responseVersion}, {number: 4, slot: typeURL}, {number: 5, slot: nonce},
	}}
)

// Scanner reads one response after the other, each in as many pieces as it comes in.
// It keeps what it is interested in, and so needs the same little memory for a
// response of any size.
type Scanner struct {
	// OnResource, if set, is called with each resource at its end.
	OnResource func(Resource)

	root  *message
	pos   int
	state state
	left  int      // bytes of the field that is passed over, or kept
	slot  slot     // where it is kept
	value uint64   // the varint that is being read
	shift int      // how much of it there is, in bits
	tag   field    // the field whose length is being read
	depth int      // of the message that is being read
	open  [8]level // the messages around it
	kept  [slots][]byte
	resp  Response
}

type level struct {
	*message
	begin, end int
}

type state int

const (
	readTag state = iota
	readLength
	readVarint
	passOver
	keep
)

// NewScanner returns a Scanner for responses of one variant.
func NewScanner(delta bool, onResource func(Resource)) *Scanner {
	s := &Scanner{OnResource: onResource, root: sotwResponse}
	if delta {
		s.root = deltaResponse
	}
	return s
}

// Begin begins a response of so many bytes.
func (s *Scanner) Begin(size int) {
	s.pos, s.depth, s.state, s.resp = 0, 0, readTag, Response{}
	s.value, s.shift = 0, 0
	s.open[0] = level{s.root, 0, size}
	for i := range s.kept {
		s.kept[i] = s.kept[i][:0]
	}
}

// Response is what was read, once all the bytes have been fed.
func (s *Scanner) Response() (Response, error) {
	if s.pos != s.open[0].end || s.depth != 0 || s.state != readTag || s.shift != 0 {
		return Response{}, errors.New("wire: a response ends in the middle of a field")
	}
	s.resp.TypeURL, s.resp.Nonce, s.resp.Version = s.kept[typeURL], s.kept[nonce], s.kept[responseVersion]
	return s.resp, nil
}

// Feed takes in the next bytes of the response.
func (s *Scanner) Feed(b []byte) error {
	for len(b) > 0 {
		switch s.state {
		case passOver, keep:
			n := min(len(b), s.left)
			if s.state == keep {
				s.kept[s.slot] = append(s.kept[s.slot], b[:n]...)
			}
			b, s.pos, s.left = b[n:], s.pos+n, s.left-n
			if s.left == 0 {
				s.fieldEnds()
			}
		default:
			c := b[0]
			b, s.pos = b[1:], s.pos+1
			if s.shift > 63 {
				return errors.New("wire: a number in a response is too long")
			}
			s.value |= uint64(c&0x7f) << s.shift
			s.shift += 7
			if c&0x80 != 0 {
				continue
			}
			v := s.value
			s.value, s.shift = 0, 0
			if err := s.number(v); err != nil {
				return err
			}
		}
	}
	return nil
}

// number takes in a number: a tag, a length, or the value of a field.
func (s *Scanner) number(v uint64) error {
	switch s.state {
	case readTag:
		number, typ := protowire.DecodeTag(v)
		s.tag = s.open[s.depth].field(number)
		switch typ {
		case protowire.BytesType:
			s.state = readLength
		case protowire.VarintType:
			s.state = readVarint
		case protowire.Fixed32Type:
			s.state, s.left = passOver, 4
		case protowire.Fixed64Type:
			s.state, s.left = passOver, 8
		default:
			return fmt.Errorf("wire: field %d of a response has the unknown wire type %d", number, typ)
		}
	case readVarint:
		s.fieldEnds()
	case readLength:
		end := s.open[s.depth].end
		if v > uint64(end-s.pos) {
			return fmt.Errorf("wire: a field of %d bytes does not fit into its message", v)
		}
		s.begins(int(v))
	}
	return nil
}

// begins begins a field of a length.
func (s *Scanner) begins(size int) {
	switch {
	case s.tag.into != nil:
		s.depth++
		s.open[s.depth] = level{s.tag.into, s.pos, s.pos + size}
		s.state = readTag
		if s.tag.into.resource {
			s.kept[name], s.kept[version], s.kept[step] = s.kept[name][:0], s.kept[version][:0], s.kept[step][:0]
		}
		s.leave()
		return
	case s.tag.slot == removed:
		s.resp.Removed++
		s.state = passOver
	case s.tag.slot != nowhere:
		// The first locality tells the step.
		if s.state, s.slot = keep, s.tag.slot; s.slot == step && len(s.kept[step]) > 0 {
			s.state = passOver
		} else {
			s.kept[s.slot] = s.kept[s.slot][:0]
		}
	default:
		s.state = passOver
	}
	if s.left = size; size == 0 {
		s.fieldEnds()
	}
}

func (s *Scanner) fieldEnds() {
	s.state = readTag
	s.leave()
}

// leave ends the messages that end here.
func (s *Scanner) leave() {
	for s.depth > 0 && s.pos >= s.open[s.depth].end {
		l := s.open[s.depth]
		s.depth--
		if !l.resource {
			continue
		}
		s.resp.Resources++
		s.resp.ResourceBytes += l.end - l.begin
		if s.OnResource != nil {
			s.OnResource(Resource{s.kept[name], s.kept[version], s.kept[step]})
		}
	}
}

func (m *message) field(number protowire.Number) field {
	for _, f := range m.fields {
		if f.number == number {
			return f
		}
	}
	return field{}
}
