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
	"strings"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Decode reads a snapshot, or says why it is not one. A damaged file is rejected as
// a whole. key must be the one it was written with, nil if there was none; f makes
// the versions of resources again.
func Decode(data []byte, key *Key, f cache.Fingerprint) (*Snapshot, error) {
	return decode(bytes.NewReader(data), key, f)
}

// decode reads the file of what is wanted.
func decode(in io.ReadSeeker, key *Key, f cache.Fingerprint) (*Snapshot, error) {
	s := new(Snapshot)
	header, err := walk(in, fileName, key, f, func(g Group) {
		s.Groups = append(s.Groups, g)
	}, func(l fanout.Saved) {
		g := &s.Groups[len(s.Groups)-1]
		g.Lanes = append(g.Lanes, l)
	})
	if err != nil {
		return nil, err
	}
	s.Header = header
	return s, nil
}

// walk reads the file of a name: it calls group for each group, without its lanes, and then lane for each
// of these. Nothing is called before all checksums have been found to be right. What was called before
// another error must not be used.
func walk(in io.ReadSeeker, name string, key *Key, f cache.Fingerprint, group func(Group), lane func(fanout.Saved)) (Header, error) {
	_, size, err := begin(in, name, key)
	if err == nil {
		err = intact(in, size)
	}
	file := ""
	if err == nil {
		file, size, err = begin(in, name, key)
	}
	if err != nil {
		return Header{}, err
	}
	r := &reader{frames: newFrameReader(in, size), key: key, file: file, fingerprint: f, onGroup: group, onLane: lane}
	for !r.ended {
		kind, payload, err := r.next()
		if err == nil {
			err = r.take(kind, payload)
		}
		if err != nil {
			return Header{}, fmt.Errorf("record %d: %w", r.records, err)
		}
		r.records++
	}
	if r.frames.left > 0 {
		return Header{}, fmt.Errorf("%d bytes follow its end", r.frames.left)
	}
	return r.header, nil
}

// begin reads what precedes the records. It returns what these are bound to if they are sealed, and how many
// bytes follow.
func begin(in io.ReadSeeker, name string, key *Key) (file string, left int64, err error) {
	size, err := in.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = in.Seek(0, io.SeekStart)
	}
	if err != nil {
		return "", 0, err
	}
	head := make([]byte, len(magicSealed)+idSize)
	n, err := io.ReadFull(in, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", 0, err
	}
	first, _, _ := strings.Cut(string(head[:n]), "\n")
	first += "\n"
	sealed := first == magicSealed || first == earlierSealed
	switch {
	case sealed && key == nil:
		return "", 0, errors.New("it is encrypted, and there is no key; set cache.snapshot.key_file")
	case !sealed && first != magic && first != earlier:
		return "", 0, errors.New("it is not a snapshot that this version can read")
	case !sealed && key != nil:
		return "", 0, errors.New("it is not encrypted, though there is a key; remove the file if that is right")
	}
	begins := len(first)
	switch {
	case first == magicSealed && n < len(head):
		return "", 0, errShort
	case first == magicSealed:
		file = sealedFile(first, name, head[begins:])
		begins = n
	default:
		file = first // as in form 1
	}
	at, err := in.Seek(int64(begins), io.SeekStart)
	return file, size - at, err
}

// frameReader reads the frames of a file.
type frameReader struct {
	in      io.Reader
	left    int64
	payload []byte // scratch
}

func newFrameReader(in io.Reader, left int64) *frameReader {
	if _, memory := in.(*bytes.Reader); !memory {
		in = bufio.NewReaderSize(in, 1<<16)
	}
	return &frameReader{in: in, left: left}
}

// head reads what precedes the payload of a frame.
func (f *frameReader) head() (size int64, sum uint32, err error) {
	var head [frameSize]byte
	if f.left < frameSize {
		return 0, 0, errShort
	}
	if _, err := io.ReadFull(f.in, head[:]); err != nil {
		return 0, 0, err
	}
	f.left -= frameSize
	if size = int64(binary.BigEndian.Uint32(head[:4])); size > f.left {
		return 0, 0, errShort
	}
	f.left -= size
	return size, binary.BigEndian.Uint32(head[4:]), nil
}

// next reads a frame. The payload is valid until the next call.
func (f *frameReader) next() (payload []byte, err error) {
	size, _, err := f.head()
	if err != nil {
		return nil, err
	}
	payload = f.scratch(size)
	_, err = io.ReadFull(f.in, payload)
	return payload, err
}

// scratch is memory for so many bytes, until the next call.
func (f *frameReader) scratch(size int64) []byte {
	if size > int64(cap(f.payload)) {
		f.payload = make([]byte, size)
	}
	return f.payload[:size]
}

// pieceSize is how much of a payload is checked at once, in bytes.
const pieceSize = 64 << 10

// check reads a frame and compares its checksum. It keeps nothing of it: a damaged length may be anything.
func (f *frameReader) check() error {
	size, sum, err := f.head()
	if err != nil {
		return err
	}
	have := uint32(0)
	for size > 0 {
		part := f.scratch(min(size, pieceSize))
		if _, err := io.ReadFull(f.in, part); err != nil {
			return err
		}
		have = crc32.Update(have, castagnoli, part)
		size -= int64(len(part))
	}
	if have != sum {
		return errors.New("its checksum is wrong")
	}
	return nil
}

var errShort = errors.New("the file ends in the middle")

// intact looks at all lengths and checksums before anything is made of them.
func intact(in io.Reader, size int64) error {
	f := newFrameReader(in, size)
	for n := 0; f.left > 0; n++ {
		if err := f.check(); err != nil {
			return fmt.Errorf("record %d: %w", n, err)
		}
	}
	return nil
}

// reader takes records in, in their order.
type reader struct {
	frames      *frameReader
	key         *Key
	file        string // of places
	fingerprint cache.Fingerprint
	records     uint64
	ended       bool

	header  Header
	group   *Group        // the last one
	lane    *fanout.Saved // the last one of it
	onGroup func(Group)
	onLane  func(fanout.Saved)
}

func (r *reader) next() (kind byte, payload []byte, err error) {
	if payload, err = r.frames.next(); err != nil {
		return 0, nil, err
	}
	if r.key != nil {
		if payload, err = r.key.open(payload, place{r.file, r.records}); err != nil {
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
	if kind != kindResource {
		r.endLane()
	}
	switch kind {
	case kindHeader:
		return json.Unmarshal(payload, &r.header)
	case kindGroup:
		r.group = new(Group)
		if err := json.Unmarshal(payload, r.group); err != nil {
			return err
		}
		r.onGroup(*r.group)
		return nil
	case kindLane:
		return r.beginLane(payload)
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

func (r *reader) beginLane(payload []byte) error {
	if r.group == nil {
		return errOrder
	}
	var l laneRecord
	if err := json.Unmarshal(payload, &l); err != nil {
		return err
	}
	saved := l.saved(r.group.Saved)
	r.lane = &saved
	return nil
}

func (r *reader) endLane() {
	if r.lane != nil {
		r.onLane(*r.lane)
		r.lane = nil
	}
}

func (r *reader) resource(payload []byte) error {
	if r.lane == nil {
		return errOrder
	}
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
	saved := cache.Held{Resource: cache.NewResource(r.lane.Lane.Type, in, r.fingerprint), Upstream: upstream, Announced: known}
	if millis > 0 {
		saved.Ends = time.UnixMilli(int64(millis))
	}
	r.lane.Resources = append(r.lane.Resources, saved)
	return nil
}
