package twin

import (
	"slices"
	"time"
)

// What the control plane has said to the relay. The relay may send its clients this and nothing else
// (G1, G4).

// word is what upstream said last of a name.
type word struct {
	present   bool
	label     string
	or        string   // the label it may have instead: upstream has replaced that one when no client wanted it any more (H-32)
	orAliases []string // those of that, and when it expires
	orEnds    time.Time
	version   string // the control plane's
	plane     int    // which control plane said it
	aliases   []string
	at        int       // the event with which it was said
	since     int       // the event since which it has been what it is
	ends      time.Time // when it expires; zero: never
	expired   bool      // it was not renewed in time (TTL-2)
	was       *word     // what expired; of a silent name, what the wildcard had lent to it
	silent    bool      // upstream has said nothing: the name went unanswered for too long
	// silentFrom is when a wildcard may have been given up that had lent to a silent name: only silence after that counts (WILD-11).
	silentFrom time.Time
	// unvouched: nor has that stream carried anything else of the type (MISS-4).
	unvouched bool
	// unsure: the relay may have it or not. Upstream sent it before it was asked for (UP-9, H-1), or
	// did not send it again with all the others (RECON-12), or it has lingered for as long as it may.
	unsure bool
	// unasked: no client had asked for it, and the relay has it only while the stream lives (UP-9).
	unasked bool
	// restored: it was loaded from disk, and neither a word of upstream nor its silence about the
	// version has confirmed it (RECON-19).
	restored bool
}

// voice is what was said in answer to one of the two kinds of interest in a type:
// by name, or by wildcard (WILD-16).
type voice struct {
	words map[string]word
	// limited are names that have had a TTL: a client that comes back may have the resource with it (TTL-12).
	// False: the relay may not know that.
	limited map[string]bool
	// complete: the wildcard's set has been complete (RECON-16), with the event completed at the latest.
	// grew: the stream ended when the set may not have been, since more of it had just come.
	complete  bool
	completed int
	grew      bool
	// warm: all of it was loaded from disk, and the control plane has not said
	// anything since (RECON-19).
	warm bool
	// settling: it has not said that this is all there is.
	settling bool
}

func newVoice() *voice { return &voice{words: map[string]word{}, limited: map[string]bool{}} }

// present is the last word on a name, and whether it is that the name exists.
func (v *voice) present(name string) (word, bool) {
	w := v.words[name]
	return w, w.present
}

// unnamed reports whether a resource exists and has lost the aliases that are asked for (NAME-5).
func (v *voice) unnamed(name string, i *Interest) bool {
	w, present := v.present(name)
	return present && !w.unsure && !i.Named(name, w.aliases) && !i.Wildcard
}

// absent reports whether the last word on a name is that it does not exist, or the relay may have missed
// that it does.
func (v *voice) absent(name string) bool {
	w, ok := v.words[name]
	return ok && (!w.present || w.unsure)
}

// denied reports whether the last word on a name is that it does not exist.
func (v *voice) denied(name string) bool {
	w, ok := v.words[name]
	return ok && !w.present
}

// matches reports whether a subscribed name leads to something that exists and is of that kind.
func (v *voice) matches(asked string, kind func(word) bool) bool {
	for _, name := range append(aliased(asked), asked) {
		if w := v.words[name]; w.present && answers(name, w.aliases, asked) && kind(w) {
			return true
		}
	}
	return false
}

// matched reports whether a subscribed name leads to something that exists.
func (v *voice) matched(asked string) bool { return v.matches(asked, func(word) bool { return true }) }

// surely and unsurely report whether the relay has a resource for certain, or only may have it.
func surely(w word) bool   { return !w.unsure }
func unsurely(w word) bool { return w.unsure }

// set notes that a resource exists. It returns the names that lead to something else now.
func (v *voice) set(name string, w word) (changed []string) {
	before := v.words[name]
	w.present, w.since = true, w.at
	same := before.present && !before.unsure && before.label == w.label && slices.Equal(before.aliases, w.aliases)
	if same {
		w.since = before.since
	}
	if v.words[name] = w; same {
		return nil
	}
	return append(append(v.lose(before), name), w.aliases...)
}

// over notes that the stream has ended on which names were asked for.
func (v *voice) over() {
	for name, w := range v.words {
		if w.unasked {
			delete(v.words, name)
		}
	}
}

// recall notes that some client asks for a name.
func (v *voice) recall(asked string) {
	for _, name := range append(aliased(asked), asked) {
		if w := v.words[name]; w.unasked && answers(name, w.aliases, asked) {
			w.unasked = false
			v.words[name] = w
		}
	}
}

// doubt notes that what was said up to an event may have changed, unless a version of it was shown.
func (v *voice) doubt(upTo int, shown map[string]string) {
	for name, w := range v.words {
		if _, ok := shown[name]; !ok && w.present && w.at <= upTo {
			w.unsure = true
			v.words[name] = w
		}
	}
}

// certain notes that what was said last is in force.
func (v *voice) certain() {
	for name, w := range v.words {
		w.or, w.orAliases = "", nil
		v.words[name] = w
	}
}

// muted reports whether only the silence of a stream that has carried nothing of the type says that a
// name does not exist.
func (v *voice) muted(name string) bool {
	w := v.words[name]
	return w.silent && w.unvouched
}

// vouch notes that a stream whose silence counts has carried something of the type.
func (v *voice) vouch() {
	for name, w := range v.words {
		w.unvouched = false
		v.words[name] = w
	}
}

// confirm notes that a stream has been silent about the resources whose versions it was shown. What was
// said of a name in doubt was faulty, and confirms nothing (ERR-10).
func (v *voice) confirm(shown map[string]string, doubted func(name string) bool) {
	for name := range shown {
		if w := v.words[name]; w.restored && !doubted(name) {
			w.restored = false
			v.words[name] = w
		}
	}
}

// remove notes that a resource does not exist.
func (v *voice) remove(name string, at int) (changed []string) {
	before, had := v.words[name]
	if had && !before.present && !before.silent && !before.unsure && !before.expired && !before.restored {
		return nil // it is known to be gone: nothing changes, and an error over it stays (UP-19)
	}
	v.words[name] = word{at: at}
	if !before.present {
		return nil
	}
	return append(v.lose(before), name)
}

// lose notes the aliases that lead to nothing any more (NAME-5). It returns all aliases of the resource.
func (v *voice) lose(before word) (lost []string) {
	for _, alias := range before.aliases {
		if !v.matched(alias) {
			v.words[alias] = word{at: before.at, unsure: before.unsure}
		}
		lost = append(lost, alias)
	}
	return lost
}

// forget drops what only unsubscribed names led to (UP-8, H-18); if there are none, all that the
// subscribed names do not lead to. What names lead to that the same request adds may have been dropped
// before they were asked for, or not (H-1). It never drops what keep reports.
func (v *voice) forget(subscribed map[string]time.Time, unsubscribed, added []string, keep func(string, word) bool) {
	givenUp := map[string]bool{}
	for _, name := range unsubscribed {
		givenUp[name] = true
	}
	for name, w := range v.words {
		drop, names := unsubscribed == nil || givenUp[name], []string{name}
		if w.present {
			names = append(names, w.aliases...)
		}
		asked, before := false, false
		for _, led := range names {
			_, is := subscribed[led]
			drop, asked, before = drop || givenUp[led], asked || is, before || is && !slices.Contains(added, led)
		}
		switch {
		case !drop || before:
		case asked && w.present || !asked && keep(name, w):
			w.unsure = true // it was no answer to what is asked again (H-1)
			v.words[name] = w
		case !asked:
			delete(v.words, name)
		}
	}
}

// knowledge is what the relay knows of one type.
type knowledge struct {
	byName, byWildcard *voice
	// erred are names of which the control plane has sent an error: when it is over,
	// clients may be told what they have (ERR-8).
	erred map[string]bool
}

func (k *knowledge) voice(wildcard bool) *voice {
	if wildcard {
		return k.byWildcard
	}
	return k.byName
}

func (k *knowledge) voices() []*voice { return []*voice{k.byName, k.byWildcard} }

// says reports whether the last word of some voice on a name is this content, or may be.
func (k *knowledge) says(name, label string) bool {
	for _, v := range k.voices() {
		if w, ok := v.present(name); ok && (w.label == label || w.or == label) {
			return true
		}
	}
	return false
}

// listed reports whether the last word of some voice on a resource lists an alias.
func (k *knowledge) listed(name, alias string) bool {
	return slices.ContainsFunc(k.voices(), func(v *voice) bool { return slices.Contains(v.words[name].aliases, alias) })
}

// has reports whether the last word of some voice on a name is that it exists.
func (k *knowledge) has(name string) bool {
	return k.byName.words[name].present || k.byWildcard.words[name].present
}

// states reports whether the last word of some voice on a name is this content.
func (k *knowledge) states(name, label string) bool {
	for _, v := range k.voices() {
		if w, ok := v.present(name); ok && w.label == label {
			return true
		}
	}
	return false
}

// spoken reports whether the control plane has said this content to this life of the relay, or may have
// confirmed it by its silence (RECON-11).
func (k *knowledge) spoken(name, label string) bool {
	for _, v := range k.voices() {
		if w, ok := v.present(name); ok && (w.label == label || w.or == label) && !v.warm {
			return true
		}
	}
	return false
}

// torn reports whether a resource does not exist by name, and does by wildcard. Whatever a client is
// sent of it then may be sent again.
func (k *knowledge) torn(name string) bool {
	return k.byName.absent(name) && k.byWildcard.words[name].present
}

// age is the latest event with which a content was said, and with which it last came, or came back.
func (k *knowledge) age(name, label string) (at, since int) {
	for _, v := range k.voices() {
		if w, ok := v.present(name); ok && w.label == label {
			at, since = max(at, w.at), max(since, w.since)
		}
	}
	return at, since
}

// answered reports whether the control plane has answered a name that was asked for.
func (v *voice) answered(asked string) bool {
	w, ok := v.words[asked]
	return v.matched(asked) || ok && !w.silent
}

// expired reports whether a resource is gone since its TTL has run out (TTL-2). What was said by name
// does not concern a client that only has the wildcard.
func (k *knowledge) expired(name string, i *Interest) (expired bool) {
	if i.Wildcard && !i.Names[name] {
		return k.byWildcard.words[name].expired
	}
	for _, v := range k.voices() {
		w := v.words[name]
		if w.present {
			return false
		}
		expired = expired || w.expired
	}
	return expired
}

// leads reports whether one of the names that a client asked for leads to a resource. Until a name has its
// own answer, it leads to what the wildcard has (WILD-16).
func (k *knowledge) leads(name string, i *Interest) bool {
	var aliases []string
	for _, v := range k.voices() {
		aliases = append(aliases, v.words[name].aliases...)
	}
	for _, asked := range append(aliases, name) {
		if !i.Names[asked] {
			continue
		}
		v := k.byName
		if !v.answered(asked) {
			v = k.byWildcard
		}
		if w, ok := v.present(name); ok && !w.unsure && answers(name, w.aliases, asked) {
			return true
		}
	}
	return false
}

// gone reports whether a client with this interest may be told that a name does not exist (G4).
// brought: the client has it from an earlier stream only. kept reports whether the relay must have what
// was sent because of a name. doubted reports whether a name that the client came with is in doubt, so
// that nothing waits for it (§0).
func (k *knowledge) gone(name string, i *Interest, brought bool, kept, doubted func(asked string) bool) bool {
	switch {
	case k.torn(name) && i.Names[name] || k.byName.matches(name, unsurely) || k.byWildcard.matches(name, unsurely):
		return true
	case k.leads(name, i):
		return false
	case k.expired(name, i):
		return true
	case i.Names[name]:
		return k.byName.absent(name)
	case i.Wildcard:
		if k.byWildcard.warm { // what was loaded may lack it
			return k.byName.absent(name) && !k.byWildcard.words[name].present
		}
		return k.byWildcard.absent(name) || k.byWildcard.complete && !k.byWildcard.words[name].present
	}
	if k.byName.absent(name) {
		return true
	}
	_, named := k.byName.present(name) // to what it answers is known
	if !brought {
		return true
	}
	for asked := range i.Names {
		if k.byName.warm && kept(asked) {
			return false // what was loaded may be out of date
		}
		if _, known := k.byName.words[asked]; !named && !known && !doubted(asked) && !k.byName.matched(asked) && !k.byWildcard.matched(asked) {
			return false // it may yet lead there (DOWN-DELTA-11)
		}
	}
	return true
}
