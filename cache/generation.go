package cache

import (
	"iter"
	"math"
)

// A generation is the set of resources that one origin has announced since a stream began without
// versions, until another one begins so. Older resources are kept and served, but unannounced: they
// may be gone, and their upstream versions may be another origin's. They are announced
// again, or swept when the origin has announced all there is (RECON-12).

// Origin is who a generation comes from: an upstream entry, and the way in which it
// was asked. With SotW it gives no version of a single resource that Delta knows.
type Origin struct {
	Entry string
	SotW  bool
}

// noGeneration is the generation of resources that belong to none.
const noGeneration = math.MaxUint32

// Begin starts a new, empty generation. Until it is Heard it can be taken back.
func (t *Table) Begin(origin Origin) {
	t.before.generation, t.before.origin, t.before.unheard = t.generation, t.origin, true
	t.generation++
	t.origin, t.mentioned = origin, nil
}

// Heard notes that the present generation's origin has said something.
func (t *Table) Heard() { t.before.unheard = false }

// Recall takes the present generation back if its origin has said nothing: the
// resources still belong to the one before it (RECON-8).
func (t *Table) Recall() {
	if t.before.unheard {
		t.generation, t.origin, t.before.unheard = t.before.generation, t.before.origin, false
	}
}

// Resume goes on with the present generation: the origin is shown its versions, and its silence
// means that nothing has changed (RECON-11).
func (t *Table) Resume(origin Origin) { t.origin, t.mentioned = origin, nil }

// Origin is the origin of the present generation; zero: none was asked yet.
func (t *Table) Origin() Origin { return t.origin }

// Settled is the generation of the last origin that has said anything: an attempt to ask
// another one changes nothing (RECON-8).
func (t *Table) Settled() (Origin, iter.Seq[Held]) {
	if !t.before.unheard {
		return t.origin, t.All()
	}
	return t.before.origin, t.all(t.before.generation)
}

// Hold returns the resource that bears a name, which must be Present, as Settled yields it.
func (t *Table) Hold(id ID) Held {
	generation := t.generation
	if t.before.unheard {
		generation = t.before.generation
	}
	e := t.at(id)
	ends, _, _ := t.Ends(id)
	return Held{e.resource, e.upstream, ends, e.generation == generation}
}

// Announced reports whether a resource of that name is Present, and announced in
// the present generation.
func (t *Table) Announced(name string) bool {
	id, ok := t.ids[name]
	return ok && t.at(id).state == Present && t.at(id).generation == t.generation
}

// Unannounce takes back an announcement that was no answer.
func (t *Table) Unannounce(name string) {
	if id, ok := t.ids[name]; ok {
		t.at(id).generation = noGeneration
	}
}

// Mention notes that the origin has spoken of a name, even if only with a fault or
// an error, so that its resource is not swept (ERR-8, ERR-10). whole: in a response
// with everything, so that, if somebody holds its ID, nothing that it leads to is.
func (t *Table) Mention(name string, whole bool) {
	if t.mentioned == nil {
		t.mentioned = make(map[string]bool)
	}
	if id, ok := t.ids[name]; ok {
		for r := range t.Leads(id) {
			if r.Name == name || whole && t.at(id).pinned {
				t.mentioned[r.Name] = true
			}
		}
	}
}

// sweepable: a resource is Present, but unannounced, and the origin has not spoken
// of it in any other way.
func (t *Table) sweepable(id ID) bool {
	e := t.at(id)
	return e.state == Present && e.generation != t.generation && !t.mentioned[e.name]
}

// Unannounced are the resources that may be swept.
func (t *Table) Unannounced() (names []string) {
	for id := t.oldest; id != none; id = t.at(id).next {
		if t.sweepable(id) {
			names = append(names, t.at(id).name)
		}
	}
	return names
}

// UnannouncedAnswers are those of them to which a name leads, by itself and as an alias.
func (t *Table) UnannouncedAnswers(name string) (names []string) {
	id, ok := t.ids[name]
	if !ok {
		return nil
	}
	for r := range t.Leads(id) {
		if t.sweepable(t.ids[r.Name]) {
			names = append(names, r.Name)
		}
	}
	return names
}

// Known is what the present generation holds, with the upstream's version of it, to
// resume an upstream subscription (RECON-6, RECON-7). An unannounced
// resource has no version that its origin would know.
func (t *Table) Known() (known []Held) {
	for r := range t.All() {
		if r.Announced {
			known = append(known, r)
		}
	}
	return known
}
