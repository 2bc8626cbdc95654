package twin

import (
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"
)

// What is too large for a response to a client, in games in which a version in three is (ERR-13). Its
// client is told so once it is what there is, and goes on with what it has, until that is replaced
// or gone.

// isLarge: the content that a label stands for is too large, in games that have such.
func isLarge(label string) bool {
	n, err := strconv.Atoi(label[min(1, len(label)):])
	return err == nil && n%3 == 0
}

// large: a content is too large for a client. A SotW client is sent whole sets as they are.
func (c *Checker) large(cl *clientState, k kind, label string) bool {
	return c.settings.Large && isLarge(label) && !(cl.sotw && k.full)
}

// toldLarge judges that a client is told that a resource is too large for it, if that is what an
// error says. It answers all names that lead to the resource.
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

// has: a client has what the relay knows, by name or by wildcard (WILD-16), or was told that it is
// too large. While an answer to the wildcard is owed, that is not said alone (DOWN-DELTA-13).
func (c *Checker) has(cl *clientState, k kind, t *topic, name string, w word) bool {
	if c.large(cl, k, w.label) && t.whole && !cl.sotw {
		return true
	}
	known := c.known[k.name]
	told := func(v *voice) bool {
		is, present := v.present(name)
		return present && c.large(cl, k, is.label) && t.tooLarge[name][is.label]
	}
	return known.says(name, t.holds[name].label) || slices.ContainsFunc(known.voices(), told)
}

// withoutLarge takes out of what a client should hold what it was told is too large for it, and
// out of what it holds older versions of that.
func (c *Checker) withoutLarge(cl *clientState, k kind, t *topic, view, holds map[string]string) {
	for name, label := range view {
		if c.large(cl, k, label) && t.tooLarge[name][label] {
			delete(view, name)
			delete(holds, name)
		}
	}
}
