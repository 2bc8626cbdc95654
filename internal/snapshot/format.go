package snapshot

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Snapshot is what a relay saves.
type Snapshot struct {
	Header Header
	Groups []Group
}

// Header says where a snapshot comes from, for people, and what is of no group.
type Header struct {
	// Relay is the version of the relay that wrote it, Instance its name.
	Relay    string    `json:"relay"`
	Instance string    `json:"instance"`
	Written  time.Time `json:"written"`
	// Habits are how control planes, by name, send the sets of wildcards (RECON-16).
	Habits map[string]string `json:"habits,omitempty"`
}

// Group is what one group knew.
type Group struct {
	// Name is the group's, and of no meaning to anybody else.
	Name []byte `json:"name"`
	// Saved is the age of what follows: when the control plane was last known to be alive, or, of
	// what is unwanted, when it was last subscribed to.
	Saved time.Time `json:"saved"`
	// Unwanted: nobody wanted it any more when it was saved.
	Unwanted bool           `json:"unwanted,omitempty"`
	Lanes    []fanout.Saved `json:"-"`
}

// GroupsOf returns what is saved of a group. Lanes with an age of their own are apart.
func GroupsOf(name string, saved time.Time, unwanted bool, lanes []fanout.Saved) (groups []Group) {
	for _, l := range lanes {
		as := saved
		if !l.AsOf.IsZero() {
			as = l.AsOf
		}
		i := slices.IndexFunc(groups, func(g Group) bool { return g.Saved.Equal(as) })
		if i < 0 {
			i = len(groups)
			groups = append(groups, Group{Name: []byte(name), Saved: as, Unwanted: unwanted})
		}
		groups[i].Lanes = append(groups[i].Lanes, l)
	}
	return groups
}

// What a record is.
const (
	kindHeader   = 'H'
	kindGroup    = 'G'
	kindLane     = 'L'
	kindResource = 'R'
	kindEnd      = 'E'
)

// The first line of a file; the number changes with the form. In form 1 a group was there once, and all
// of it was wanted; otherwise it was the same, and it is still read.
const (
	magic         = "xds-relay snapshot 2\n"
	magicSealed   = "xds-relay snapshot 2 sealed\n"
	earlier       = "xds-relay snapshot 1\n"
	earlierSealed = "xds-relay snapshot 1 sealed\n"
)

type laneRecord struct {
	Type     string       `json:"type"`
	Wildcard bool         `json:"wildcard"`
	Origin   cache.Origin `json:"origin"`
	Names    [][]byte     `json:"names,omitempty"`
	Gone     [][]byte     `json:"gone,omitempty"`
}

// recordOf has names as bytes, because JSON would not leave them as they are.
func recordOf(s fanout.Saved) laneRecord {
	return laneRecord{
		Type: string(s.Lane.Type), Wildcard: s.Lane.Wildcard, Origin: s.Origin,
		Names: each(s.Names, func(name string) []byte { return []byte(name) }),
		Gone:  each(s.Gone, func(name string) []byte { return []byte(name) }),
	}
}

// saved is what a record stands for; asOf is the age of its group.
func (l laneRecord) saved(asOf time.Time) fanout.Saved {
	return fanout.Saved{
		Lane: fanout.Lane{Type: cache.TypeURL(l.Type), Wildcard: l.Wildcard}, Origin: l.Origin, AsOf: asOf,
		Names: each(l.Names, func(name []byte) string { return string(name) }),
		Gone:  each(l.Gone, func(name []byte) string { return string(name) }),
	}
}

func each[A, B any](all []A, of func(A) B) (made []B) {
	for _, a := range all {
		made = append(made, of(a))
	}
	return made
}

type endRecord struct {
	Records uint64 `json:"records"`
}

// frameSize is what stands before a payload.
const frameSize = 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode writes a snapshot; key may be nil.
func (s *Snapshot) Encode(out io.Writer, key *Key) error {
	w := newWriter(out, fileName, key)
	w.begin(s.Header)
	for _, g := range s.Groups {
		w.json(kindGroup, g)
		for _, l := range g.Lanes {
			w.lane(l)
		}
	}
	return w.end()
}

// writer writes records; its first error stays.
type writer struct {
	out     *bufio.Writer
	key     *Key
	name    string // of the file
	file    string // of places
	records uint64
	payload []byte // scratch
	err     error
}

// newWriter returns a writer of a file that will have a name.
func newWriter(out io.Writer, name string, key *Key) *writer {
	return &writer{out: bufio.NewWriterSize(out, 1<<16), key: key, name: name}
}

func (w *writer) begin(h Header) {
	if w.key == nil {
		w.raw([]byte(magic))
	} else {
		id := make([]byte, idSize)
		_, _ = rand.Read(id) // it never fails
		w.file = sealedFile(magicSealed, w.name, id)
		w.raw([]byte(magicSealed))
		w.raw(id)
	}
	w.json(kindHeader, h)
}

func (w *writer) lane(l fanout.Saved) {
	w.json(kindLane, recordOf(l))
	for _, r := range l.Resources {
		w.resource(r)
	}
}

func (w *writer) end() error {
	w.json(kindEnd, endRecord{w.records})
	if w.err != nil {
		return w.err
	}
	return w.out.Flush()
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
	if r.Announced {
		return confirmed
	}
	return 0
}

func (w *writer) record(p []byte) {
	w.payload = p
	if w.key != nil {
		p = w.key.seal(p, place{w.file, w.records})
	}
	var frame [frameSize]byte
	binary.BigEndian.PutUint32(frame[:4], uint32(len(p)))
	binary.BigEndian.PutUint32(frame[4:], crc32.Checksum(p, castagnoli))
	w.raw(frame[:])
	w.raw(p)
	w.records++
}
