package twin

import (
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"
)

// In some games a version in three is too large for a response (ERR-13). The client is sent an error, once,
// and keeps what it has until that is replaced or gone.

// isLarge reports whether the content that a label stands for is too large, in games that have such.
func isLarge(label string) bool {
	n, err := strconv.Atoi(label[min(1, len(label)):])
	return err == nil && n%3 == 0
}

// large reports whether a content is too large for a client. A full-state set goes to SotW clients as it is.
func (c *Checker) large(cl *clientState, k kind, label string) bool {
	return c.settings.Large && isLarge(label) && !(cl.sotw && k.full)
}

// knowsLarge reports whether a content is too large for a client, and the client was told so.
func (c *Checker) knowsLarge(cl *clientState, k kind, t *topic, name, label string) bool {
	return c.large(cl, k, label) && t.tooLarge[name][label]
}

// toldLarge judges an error that says that a resource is too large for a client. It reports whether the
// error says that. Such an error answers all names that lead to the resource.
func (c *Checker) toldLarge(who string, cl *clientState, k kind, t *topic, name string, code codes.Code) bool {
	if code != codes.ResourceExhausted {
		return false
	}
	is := false
	for _, v := range c.known[k.name].voices() {
		w, present := v.present(name)
		if !present || !c.large(cl, k, w.label) && !c.large(cl, k, w.or) {
			continue
		}
		is = true
		if t.tooLarge[name] == nil {
			t.tooLarge[name] = map[string]bool{}
		}
		t.tooLarge[name][w.label], t.tooLarge[name][w.or] = true, true
		t.settle(name, w.aliases)
		if k.name == "EDS" {
			for _, asked := range append(slices.Clone(w.aliases), name) {
				delete(cl.warm, asked)
			}
		}
	}
	if !is {
		c.fail("ERR-13", "%s is told that %s is too large, and it is not", who, name)
	}
	return true
}

// has reports whether a client has what the relay knows, by name or by wildcard (WILD-16), or was sent the
// error that it is too large. While an answer to the wildcard is owed, that error does not go alone
// (DOWN-DELTA-13).
func (c *Checker) has(cl *clientState, k kind, t *topic, name string, w word) bool {
	if c.large(cl, k, w.label) && t.whole && !cl.sotw {
		return true
	}
	known := c.known[k.name]
	told := func(v *voice) bool {
		is, present := v.present(name)
		return present && c.knowsLarge(cl, k, t, name, is.label)
	}
	return known.says(name, t.holds[name].label) || slices.ContainsFunc(known.voices(), told)
}

// withoutLarge leaves out of what a client should hold, and of what it holds, the resources of which it was
// told that they are too large. Of a type that is not full-state SotW cannot say that one has lost the alias
// that leads the client there (TRANSLATE-7), nor does a server that ignores versions (RECON-11), another
// control plane that says nothing of the type to the stream that asks by name (RECON-12), or one that sent
// the alias while the stream did not ask for it yet (hasCrossed).
func (c *Checker) withoutLarge(cl *clientState, k kind, t *topic, view, holds map[string]string) {
	told := func(name, label string) bool { return c.knowsLarge(cl, k, t, name, label) }
	for name, label := range view {
		w, known := c.known[k.name].byName.present(name)
		stays := c.forgetful && !k.full || c.overlooked(k, name) || c.stays(k, w) || c.hasCrossed(k, name)
		if led := known && stays && t.interest.Named(name, w.aliases); told(name, label) || led && told(name, w.label) {
			delete(view, name)
			delete(holds, name)
		}
	}
}
