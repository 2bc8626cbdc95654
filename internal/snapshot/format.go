package snapshot

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Snapshot is what a relay saves.
type Snapshot struct {
	Header Header
	Groups []Group
}

// Header says where a snapshot comes from, for people.
type Header struct {
	// Relay is the version of the relay that wrote it, Instance its name.
	Relay    string    `json:"relay"`
	Instance string    `json:"instance"`
	Written  time.Time `json:"written"`
}

// Group is what one group knew.
type Group struct {
	// Name is the group's, and of no meaning to anybody else.
	Name []byte `json:"name"`
	// Saved is when the group last lived.
	Saved time.Time      `json:"saved"`
	Lanes []fanout.Saved `json:"-"`
}

// What a record is.
const (
	kindHeader   = 'H'
	kindGroup    = 'G'
	kindLane     = 'L'
	kindResource = 'R'
	kindEnd      = 'E'
)

// The first line of a file; the number changes with the form.
const (
	magic       = "xds-relay snapshot 1\n"
	magicSealed = "xds-relay snapshot 1 sealed\n"
)

type laneRecord struct {
	Type     string       `json:"type"`
	Wildcard bool         `json:"wildcard"`
	Origin   cache.Origin `json:"origin"`
	Names    [][]byte     `json:"names,omitempty"`
}

// recordOf has names as bytes, because JSON would not leave them as they are.
func recordOf(s fanout.Saved) laneRecord {
	l := laneRecord{Type: string(s.Lane.Type), Wildcard: s.Lane.Wildcard, Origin: s.Origin}
	for _, name := range s.Names {
		l.Names = append(l.Names, []byte(name))
	}
	return l
}

func (l laneRecord) saved() fanout.Saved {
	s := fanout.Saved{Lane: fanout.Lane{Type: cache.TypeURL(l.Type), Wildcard: l.Wildcard}, Origin: l.Origin}
	for _, name := range l.Names {
		s.Names = append(s.Names, string(name))
	}
	return s
}

type endRecord struct {
	Records uint64 `json:"records"`
}

// frameSize is what stands before a payload.
const frameSize = 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode writes a snapshot; key may be nil.
func (s *Snapshot) Encode(out io.Writer, key *Key) error {
	w := newWriter(out, key)
	w.raw([]byte(firstLine(key)))
	w.json(kindHeader, s.Header)
	for _, g := range s.Groups {
		w.json(kindGroup, g)
		for _, l := range g.Lanes {
			w.json(kindLane, recordOf(l))
			for _, r := range l.Resources {
				w.resource(r)
			}
		}
	}
	w.json(kindEnd, endRecord{w.records})
	if w.err != nil {
		return w.err
	}
	return w.out.Flush()
}

func firstLine(key *Key) string {
	if key != nil {
		return magicSealed
	}
	return magic
}

// writer writes records; its first error stays.
type writer struct {
	out     *bufio.Writer
	key     *Key
	records uint64
	payload []byte // scratch
	err     error
}

func newWriter(out io.Writer, key *Key) *writer {
	return &writer{out: bufio.NewWriterSize(out, 1<<16), key: key}
}

func (w *writer) raw(b []byte) {
	if w.err == nil {
		_, w.err = w.out.Write(b)
	}
}

func (w *writer) json(kind byte, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		w.err = errors.Join(w.err, err)
		return
	}
	w.record(append(append(w.payload[:0], kind), b...))
}

func (w *writer) resource(r cache.Held) {
	p := append(w.payload[:0], kindResource, flags(r))
	p = binary.AppendUvarint(p, uint64(len(r.Upstream)))
	p = append(p, r.Upstream...)
	expires := uint64(0)
	if !r.Ends.IsZero() {
		expires = uint64(max(r.Ends.UnixMilli(), 1))
	}
	p = binary.AppendUvarint(p, expires)
	w.record(append(p, r.Resource.Element()...))
}

// confirmed is the flag of a resource whose version its origin would know.
const confirmed = 1

func flags(r cache.Held) byte {
	if r.Confirmed {
		return confirmed
	}
	return 0
}

func (w *writer) record(p []byte) {
	w.payload = p
	if w.key != nil {
		p = w.key.seal(p, w.records)
	}
	var frame [frameSize]byte
	binary.BigEndian.PutUint32(frame[:4], uint32(len(p)))
	binary.BigEndian.PutUint32(frame[4:], crc32.Checksum(p, castagnoli))
	w.raw(frame[:])
	w.raw(p)
	w.records++
}

// Decode reads a snapshot, or says why it is not one. A damaged file is rejected as
// a whole. key must be the one it was written with, nil if there was none; f makes
// the versions of resources again.
func Decode(data []byte, key *Key, f cache.Fingerprint) (*Snapshot, error) {
	switch {
	case bytes.HasPrefix(data, []byte(magicSealed)) && key == nil:
		return nil, errors.New("it is encrypted, and there is no key; set cache.snapshot.key_file")
	case bytes.HasPrefix(data, []byte(magic)) && key != nil:
		return nil, errors.New("it is not encrypted, though there is a key; remove the file if that is right")
	case !bytes.HasPrefix(data, []byte(firstLine(key))):
		return nil, errors.New("it is not a snapshot that this version can read")
	}
	data = data[len(firstLine(key)):]
	if err := intact(data); err != nil {
		return nil, err
	}
	r := &reader{data: data, key: key, fingerprint: f}
	for !r.ended {
		kind, payload, err := r.next()
		if err == nil {
			err = r.take(kind, payload)
		}
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", r.records, err)
		}
		r.records++
	}
	if len(r.data) > 0 {
		return nil, fmt.Errorf("%d bytes follow its end", len(r.data))
	}
	return &r.snapshot, nil
}

// reader takes records in, in their order.
type reader struct {
	data        []byte
	key         *Key
	fingerprint cache.Fingerprint
	records     uint64
	ended       bool
	snapshot    Snapshot
}

// intact looks at all lengths and checksums before anything is made of them.
func intact(data []byte) error {
	for n := 0; len(data) > 0; n++ {
		payload, rest, err := frame(data)
		if err != nil {
			return fmt.Errorf("record %d: %w", n, err)
		}
		if crc32.Checksum(payload, castagnoli) != binary.BigEndian.Uint32(data[4:frameSize]) {
			return fmt.Errorf("record %d: its checksum is wrong", n)
		}
		data = rest
	}
	return nil
}

func frame(data []byte) (payload, rest []byte, err error) {
	if len(data) < frameSize {
		return nil, nil, errShort
	}
	size := binary.BigEndian.Uint32(data)
	if rest = data[frameSize:]; uint64(size) > uint64(len(rest)) {
		return nil, nil, errShort
	}
	return rest[:size], rest[size:], nil
}

var errShort = errors.New("the file ends in the middle")

func (r *reader) next() (kind byte, payload []byte, err error) {
	if payload, r.data, err = frame(r.data); err != nil {
		return 0, nil, err
	}
	if r.key != nil {
		if payload, err = r.key.open(payload, r.records); err != nil {
			return 0, nil, err
		}
	}
	if len(payload) == 0 {
		return 0, nil, errors.New("it is empty")
	}
	return payload[0], payload[1:], nil
}

var errOrder = errors.New("it stands in the wrong place")

func (r *reader) take(kind byte, payload []byte) error {
	if (r.records == 0) != (kind == kindHeader) {
		return errOrder
	}
	switch kind {
	case kindHeader:
		return json.Unmarshal(payload, &r.snapshot.Header)
	case kindGroup:
		var g Group
		if err := json.Unmarshal(payload, &g); err != nil {
			return err
		}
		r.snapshot.Groups = append(r.snapshot.Groups, g)
		return nil
	case kindLane:
		return r.lane(payload)
	case kindResource:
		return r.resource(payload)
	case kindEnd:
		var e endRecord
		if err := json.Unmarshal(payload, &e); err != nil {
			return err
		}
		if r.ended = true; e.Records != r.records {
			return fmt.Errorf("there are %d records before the end, not %d", r.records, e.Records)
		}
		return nil
	}
	return fmt.Errorf("a record of kind %q is not known", kind)
}

func (r *reader) lane(payload []byte) error {
	n := len(r.snapshot.Groups)
	if n == 0 {
		return errOrder
	}
	var l laneRecord
	if err := json.Unmarshal(payload, &l); err != nil {
		return err
	}
	g := &r.snapshot.Groups[n-1]
	g.Lanes = append(g.Lanes, l.saved())
	return nil
}

func (r *reader) resource(payload []byte) error {
	n := len(r.snapshot.Groups)
	if n == 0 || len(r.snapshot.Groups[n-1].Lanes) == 0 {
		return errOrder
	}
	g := &r.snapshot.Groups[n-1]
	lane := &g.Lanes[len(g.Lanes)-1]
	if len(payload) == 0 {
		return errors.New("it is empty")
	}
	known := payload[0]&confirmed != 0
	payload = payload[1:]
	length, used := binary.Uvarint(payload)
	if used <= 0 || length > uint64(len(payload)-used) {
		return errors.New("the upstream's version is damaged")
	}
	upstream := string(payload[used : used+int(length)])
	payload = payload[used+int(length):]
	millis, used := binary.Uvarint(payload)
	if used <= 0 {
		return errors.New("the end of the TTL is damaged")
	}
	var m discovery.DeltaDiscoveryResponse
	if err := proto.Unmarshal(payload[used:], &m); err != nil {
		return err
	}
	if len(m.GetResources()) != 1 || m.GetResources()[0].GetResource() == nil {
		return errors.New("it is not one resource")
	}
	in := m.GetResources()[0]
	if _, ok := cache.NameOf(in); !ok {
		return errors.New("the resource has no name")
	}
	saved := cache.Held{Resource: cache.NewResource(lane.Lane.Type, in, r.fingerprint), Upstream: upstream, Confirmed: known}
	if millis > 0 {
		saved.Ends = time.UnixMilli(int64(millis))
	}
	lane.Resources = append(lane.Resources, saved)
	return nil
}
