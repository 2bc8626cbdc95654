package cache

import (
	"iter"
	"slices"
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
)

// Seq counts the changes of one group, over all its types. A Seq is a position:
// a client that has seen everything up to it needs only later changes.
type Seq uint64

// ID stands for a name inside one Table, densely, so that a client's subscriptions cost bytes and
// not map entries. An ID may stand for another name after it was released. None is zero.
type ID uint32

// State is the state of a name (protocol.md §0).
type State uint8

const (
	// Unknown: asked for, and not answered yet.
	Unknown State = iota
	// Present: it exists, and its bytes are here.
	Present
	// Absent: it is known not to exist.
	Absent
)

// Cause is why a name is Absent.
type Cause uint8

const (
	// Removed: upstream listed it as removed.
	Removed Cause = iota + 1
	// NotFoundError: upstream's resource_errors said NOT_FOUND.
	NotFoundError
	// Timer: upstream stayed silent for the does-not-exist timeout.
	Timer
	// TTLExpired: upstream did not renew the resource's TTL in time (TTL-2).
	TTLExpired
	// Sweep: upstream announced all there is, and it was not among it (RECON-12).
	Sweep
)

// Table holds every known name of one resource type from one upstream subscription, in order of
// last change. It is passive and not safe for concurrent use: its owner locks. The zero value is an
// empty table.
//
// A change moves a name to the end of the order, so a name stands in it once and superseded changes
// vanish by themselves; names that vanished stay in it as tombstones until Prune.
type Table struct {
	ids     map[string]ID
	entries Pages[entry] // by ID
	free    []ID

	// The order of change: a list through entries, oldest first.
	oldest, newest ID
	length         int // of the order, tombstones included

	leases leases

	touched []ID // by the present call of Set, Remove or Deny

	// Changed is called for each name whose resource is about to be replaced or dropped; it
	// may be nil.
	Changed func(t *Table, id ID, before, now *Resource)
	// Turned is called for each name that has become Absent, or is not any more; it may be nil.
	Turned func(ID)

	// What is announced now belongs to this generation, which comes from origin.
	generation uint32
	origin     Origin
	mentioned  map[string]bool // unannounced, and not to be swept
	// before is the generation before it, which counts until something is heard of the present one.
	before struct {
		generation uint32
		origin     Origin
		unheard    bool
	}

	unconfirmed unconfirmed

	pins     int
	uncached int // of those present
	bytes    int
	digest   Digest
}

// none is the ID of no name: the first entry is never used.
const none ID = 0

type entry struct {
	name  string
	state State
	cause Cause
	// pinned: somebody outside refers to this ID.
	pinned bool
	// asked: upstream has been asked for the name, on the present stream or the last one.
	asked bool
	// vanished: it was Present, and is not since seq, unless it is again.
	vanished bool
	// ordered: it stands in the order of change.
	ordered bool
	// used: the ID stands for a name.
	used bool

	more *related // beside what is read with it

	seq        Seq
	prev, next ID
	generation uint32 // in which it was last announced, while Present
	age        uint32 // of an unconfirmed resource, in unconfirmed.ages, plus one

	resource *Resource // the latest, while Present
	upstream string    // the upstream's version of resource
	err      *statuspb.Status
}

func (t *Table) at(id ID) *entry { return t.entries.At(int(id)) }

// Intern returns the ID of a name, which it keeps until Unpin.
func (t *Table) Intern(name string) ID {
	return t.InternNext(new(Run), name)
}

// Pinned reports whether somebody holds the ID of a name.
func (t *Table) Pinned(name string) bool {
	id, ok := t.ids[name]
	return ok && t.at(id).pinned
}

// Interned yields the IDs that somebody holds, with their names.
func (t *Table) Interned() iter.Seq2[ID, string] {
	return func(yield func(ID, string) bool) {
		for id := range t.entries.Len() {
			if e := t.at(ID(id)); e.pinned && !yield(ID(id), e.name) {
				return
			}
		}
	}
}

// Ask notes whether upstream has been asked for a name. A new stream has not been asked for any.
func (t *Table) Ask(id ID, asked bool) { t.at(id).asked = asked }

// Asked reports whether upstream has been asked for a name on the present stream, or the last one.
func (t *Table) Asked(id ID) bool { return t.at(id).asked }

// Pins is the number of names whose IDs are held.
func (t *Table) Pins() int { return t.pins }

// Find returns the ID of a name that the table has.
func (t *Table) Find(name string) (ID, bool) {
	id, ok := t.ids[name]
	return id, ok
}

// Name is the name behind an ID.
func (t *Table) Name(id ID) string { return t.at(id).name }

// State is the state of the name itself, without aliases.
func (t *Table) State(id ID) State { return t.at(id).state }

// Cause is why the name alone is Absent.
func (t *Table) Cause(id ID) Cause { return t.at(id).cause }

// Own is the resource that bears the name, or nil: it is not Present.
func (t *Table) Own(id ID) *Resource { return t.at(id).resource }

// Bearer is Own by name.
func (t *Table) Bearer(name string) *Resource {
	if id, ok := t.ids[name]; ok {
		return t.at(id).resource
	}
	return nil
}

// Has reports whether a resource of that name is Present.
func (t *Table) Has(name string) bool { return t.Bearer(name) != nil }

// Holds reports whether a name is Present at a version of the upstream's.
func (t *Table) Holds(name, upstream string) bool {
	id, ok := t.ids[name]
	return ok && t.at(id).state == Present && t.at(id).upstream == upstream
}

// Same reports whether a resource is here with the same content.
func (t *Table) Same(r *Resource) bool {
	own := t.Bearer(r.Name)
	return own != nil && own.Version == r.Version
}

// Cap is one more than the highest ID given out so far.
func (t *Table) Cap() int { return t.entries.Len() }

// Unpin gives an ID back. Its content, if any, goes with Forget.
func (t *Table) Unpin(id ID) {
	if t.at(id).pinned {
		t.at(id).pinned = false
		t.pins--
	}
	t.release(id)
}

func (t *Table) id(name string) ID {
	if id, ok := t.ids[name]; ok {
		return id
	}
	return t.add(name)
}

// add gives an ID to a name that has none.
func (t *Table) add(name string) ID {
	if t.ids == nil {
		t.ids = make(map[string]ID)
		t.entries.Grow(1)
	}
	var id ID
	if n := len(t.free); n > 0 {
		id, t.free = t.free[n-1], t.free[:n-1]
		*t.at(id) = entry{name: name, used: true}
	} else {
		id = ID(t.entries.Len())
		t.entries.Grow(int(id) + 1)
		*t.at(id) = entry{name: name, used: true}
	}
	t.ids[name] = id
	return id
}

// release lets go of an ID that nothing refers to and that holds nothing.
func (t *Table) release(id ID) {
	e := t.at(id)
	wanted, holds := e.pinned || e.ordered, e.state == Present || e.matched()
	if !e.used || wanted || holds {
		return
	}
	delete(t.ids, e.name)
	*t.at(id) = entry{}
	t.free = append(t.free, id)
}

// Set makes a resource Present. changed is false if its content is what the table has (RECON-4,
// RECON-10); then only the upstream's version is noted, and that the resource is announced. touched
// are the names whose answer has changed; it is valid until the next Set, Remove or Deny.
func (t *Table) Set(r *Resource, upstream string, seq Seq) (touched []ID, changed bool) {
	t.touched = t.touched[:0]
	id := t.id(r.Name)
	e := t.at(id)
	had := e.err != nil
	e.err, e.generation = nil, t.generation
	t.Confirm(id)
	if e.state == Present && e.resource.Version == r.Version {
		e.upstream = upstream
		if e.resource.DoNotCache != r.DoNotCache { // the last word counts
			t.count(e.resource, -1)
			e.resource = r
			t.count(r, 1)
		}
		if had {
			t.touched = append(t.touched, id)
		}
		t.recover(r)
		return t.touched, false
	}
	was := t.Led(id)
	t.touched = append(t.touched, id)
	t.tell(id, e.resource, r)
	if e.state == Present {
		t.count(e.resource, -1)
		for _, alias := range dropped(e.resource, r) {
			t.unmatch(alias, id, Removed, seq)
		}
	}
	for name := range r.others() {
		t.match(name, id, seq)
	}
	e = t.at(id) // match may have moved the entries
	if e.more != nil {
		e.more.negative = nil
	}
	e.state, e.cause, e.resource, e.upstream = Present, 0, r, upstream
	t.count(e.resource, 1)
	t.turned(id, was)
	t.touch(id, seq)
	return t.touched, true
}

// turned tells whether a name has become Absent, or is not any more.
func (t *Table) turned(id ID, was State) {
	if t.Turned != nil && (t.Led(id) == Absent) != (was == Absent) {
		t.Turned(id)
	}
}

// Date notes that a resource is unchanged since an earlier position, at which clients got it from
// another Table. It is not for a Table that is read in order of change (Since).
func (t *Table) Date(id ID, seq Seq) { t.at(id).seq = seq }

// Remove makes a name Absent. A name that the table does not have, or that is
// Absent already, is left alone: changed is false. touched is as with Set.
func (t *Table) Remove(name string, cause Cause, seq Seq) (touched []ID, changed bool) {
	id, ok := t.ids[name]
	if !ok {
		return nil, false
	}
	e := t.at(id)
	if e.state == Absent {
		if e.cause == Timer {
			e.cause = cause // an answer outweighs silence
		}
		return nil, false
	}
	t.touched = append(t.touched[:0], id)
	t.tell(id, e.resource, nil)
	t.unlease(id)
	t.Confirm(id)
	if e.state == Present {
		t.count(e.resource, -1)
		for other := range e.resource.others() {
			t.unmatch(other, id, cause, seq)
		}
	}
	was := t.Led(id)
	e.vanished = e.vanished || e.state == Present
	e.state, e.cause, e.resource, e.upstream, e.err = Absent, cause, nil, "", nil
	t.turned(id, was)
	t.touch(id, seq)
	return t.touched, true
}

// Deny notes a negative answer for those of its aliases that are asked for and
// that no resource answers to (NAME-6, H-17). touched is as with Set.
func (t *Table) Deny(r *Resource, seq Seq) (touched []ID) {
	t.touched = t.touched[:0]
	for _, alias := range r.Aliases {
		id, ok := t.ids[alias]
		if !ok || !t.at(id).pinned || t.Led(id) == Present {
			continue
		}
		e, was := t.at(id), t.Led(id)
		again := e.state == Absent && e.relate().negative != nil && e.err == nil
		e.state, e.cause, e.err = Absent, Removed, nil // ERR-8
		e.relate().negative = r
		t.turned(id, was)
		if !again { // otherwise it is told to nobody (UP-19)
			t.touch(id, seq)
			t.touched = append(t.touched, id)
		}
	}
	return t.touched
}

// Fail lays an error over a name. Its state stays (ERR-8); NOT_FOUND is for
// Remove. changed is false if the very same error lies there.
func (t *Table) Fail(id ID, status *statuspb.Status) (changed bool) {
	e := t.at(id)
	changed = e.err == nil || e.err.GetCode() != status.GetCode() || e.err.GetMessage() != status.GetMessage()
	e.err = status
	return changed
}

// Excuse takes the error off a name, as if there had been none.
func (t *Table) Excuse(id ID) { t.at(id).err = nil }

// Forget drops all that is known of a name, as if it had never been answered (UP-8). Resources that
// were here only because they answer to it go with it, unless keep says otherwise.
func (t *Table) Forget(id ID, keep func(*Resource) bool) {
	e := t.at(id)
	e.asked = false
	also := slices.Collect(e.matches())
	if e.state != Present || !keep(e.resource) {
		t.forget(id)
	}
	for _, m := range also {
		if r := t.at(m).resource; r != nil && !keep(r) {
			t.forget(m)
			t.release(m)
		}
	}
	t.release(id)
}

// Unset drops the resource of a name, as if it had never been announced: clients that had it
// need to hear what the name leads to instead.
func (t *Table) Unset(id ID, seq Seq) {
	t.forget(id)
	t.at(id).vanished, t.at(id).seq = true, seq
	t.release(id)
}

func (t *Table) forget(id ID) {
	e := t.at(id)
	t.tell(id, e.resource, nil)
	t.unlease(id)
	t.Confirm(id)
	if e.state == Present {
		t.count(e.resource, -1)
		for other := range e.resource.others() {
			if a, ok := t.ids[other]; ok && a != id {
				was := t.Led(a)
				t.at(a).more.remove(id)
				t.turned(a, was)
				t.release(a)
			}
		}
	}
	if e.ordered {
		t.unlink(id)
	}
	e = t.at(id)
	was := t.Led(id)
	e.state, e.cause, e.resource, e.upstream, e.err, e.vanished = Unknown, 0, nil, "", nil, false
	t.turned(id, was)
	if e.more != nil {
		e.more.negative = nil
	}
}

// count counts a resource that the Table has now (by 1), or has no more (by -1).
func (t *Table) count(r *Resource, by int) {
	if by > 0 {
		t.digest.Add(r)
	} else {
		t.digest.Sub(r)
	}
	t.bytes += by * r.Size()
	if r.DoNotCache {
		t.uncached += by
	}
}

// tell calls Changed for a name whose resource is about to be replaced or dropped.
func (t *Table) tell(id ID, before, now *Resource) {
	if t.Changed != nil && (before != nil || now != nil) {
		t.Changed(t, id, before, now)
	}
}

// Upstream is the upstream's version of the resource of that name, if there is one.
func (t *Table) Upstream(id ID) string { return t.at(id).upstream }

// Held is a resource as a Table has it.
type Held struct {
	*Resource
	// Upstream is the version under which upstream knows it (RECON-6).
	Upstream string
	// Ends is when its TTL runs out; zero: never.
	Ends time.Time
	// Announced: it is of the present generation.
	Announced bool
}

// All yields what exists, in order of last change.
func (t *Table) All() iter.Seq[Held] { return t.all(t.generation) }

// all yields it with what a generation has announced.
func (t *Table) all(generation uint32) iter.Seq[Held] {
	return func(yield func(Held) bool) {
		for id := t.oldest; id != none; id = t.at(id).next {
			e := t.at(id)
			if e.state != Present {
				continue
			}
			if ends, _, _ := t.Ends(id); !yield(Held{e.resource, e.upstream, ends, e.generation == generation}) {
				return
			}
		}
	}
}

// Len is the number of resources, Bytes what their wire form takes, Tombstones
// the number of names that are remembered as gone.
func (t *Table) Len() int        { return int(t.digest.count) }
func (t *Table) Bytes() int      { return t.bytes }
func (t *Table) Tombstones() int { return t.length - t.Len() }

// Uncached is the number of resources that are kept only while somebody subscribes to them (VALID-5).
func (t *Table) Uncached() int { return t.uncached }

// Digest sums up all resources (RECON-14, RECON-15).
func (t *Table) Digest() Digest { return t.digest }
