package twin

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Settings are what a game's relay is configured with, and what its control planes are like.
type Settings struct {
	Settle, Linger, Coalesce     time.Duration
	SotW, Server, Second, Bounds string
	Snapshot, Large              bool
}

// flags are the settings by name.
func (s *Settings) flags() *flag.FlagSet {
	f := flag.NewFlagSet("settings", flag.ContinueOnError)
	f.DurationVar(&s.Settle, "settle", s.Settle, "")
	f.DurationVar(&s.Linger, "linger", s.Linger, "")
	f.DurationVar(&s.Coalesce, "coalesce", s.Coalesce, "")
	f.BoolVar(&s.Snapshot, "snapshot", s.Snapshot, "the last known good state is kept on disk")
	f.StringVar(&s.SotW, "upstream", s.SotW, "the control plane speaks only SotW; the relay knows (sotw), or finds out (auto)")
	f.StringVar(&s.Server, "server", s.Server, "what kind it is: any of those in servers.go, with a comma between")
	f.StringVar(&s.Second, "second", s.Second, "there is another control plane to turn to: with the same world, or its own (other)")
	f.StringVar(&s.Bounds, "bounds", s.Bounds, "what is bounded to next to nothing: any of those in bounds_test.go, with a comma between")
	f.BoolVar(&s.Large, "large", s.Large, "a version in three is too large for a response, whose size is bounded")
	return f
}

// Bounded reports whether a bound is tiny in this game.
func (s *Settings) Bounded(what string) bool {
	return slices.Contains(strings.Split(s.Bounds, ","), what)
}

// Op is one operation. Any operation can be played at any time; one that makes no
// sense just then does nothing.
type Op struct {
	Verb      string
	Who       int    // a client, a stream counted from the oldest, or, with two, a control plane
	Kind      string // a type's short name; "" where none is needed
	Add, Drop []string
	N         int
}

// names are those that an operation is about.
func (o Op) names() []string {
	if slices.Contains([]string{"many", "few", "subs", "unsubs"}, o.Verb) {
		return manyNames(o.N)
	}
	return o.Add
}

// Script is a game that can be played again.
type Script struct {
	Settings Settings
	Ops      []Op
}

// verbs are all operations, with what their numbers mean.
var verbs = map[string]string{
	// the world; with two control planes, who: whose (so with down, up, hang and wake)
	"set":     "the first name gets new content, with the others as aliases",
	"remove":  "the names are gone",
	"version": "the names get another version and the content they have",
	"wipe":    "the type is empty",
	"ttl":     "the names are good for N milliseconds each time that they are said; 0: for good",
	"many":    "N names, r0 and on, get new content",
	"few":     "the first N of them are gone",
	// the control plane
	"habit": "its habits from now on, as a set of flags",
	"push":  "it says on a stream what there is to say; N bits 0-4: names that may be in it (0: all), bit 5: without having read what was asked since",
	"again": "it says everything again",
	"bad":   "as push, and lists a resource twice, which is to be NACKed",
	"fault": "as push, with a fault in its first resource, which is to be NACKed; N from bit 6: which fault (fault.go)",
	"error": "it sends an error for the names",
	"beat":  "it renews the names on a stream without their bodies; N 1: for good",
	"extra": "it sends the names, asked for or not",
	"end":   "a stream ends; N: 0 it breaks, 1 UNAVAILABLE, 2 OK",
	"down":  "it is unreachable",
	"up":    "it is reachable",
	"hang":  "it stops, its connections stay",
	"wake":  "it goes on",
	// clients
	"open":      "opens a stream; N bit 0: SotW, bit 1: ACKs by itself",
	"sub":       "subscribes and unsubscribes; SotW: these names from now on, with - under a stale nonce",
	"subs":      "subscribes to the first N of many names; SotW: to these",
	"unsubs":    "gives them up; SotW: all but the first",
	"refused":   "subscribes and unsubscribes names of a type that it may not have (on the pure cores); SotW: these names from now on",
	"crowded":   "the same of a type for which there may be no room; N bit 0: which, bit 1: it comes with something",
	"ack":       "ACKs its oldest response of a type",
	"nack":      "NACKs it",
	"acks":      "ACKs everything",
	"close":     "goes away for good",
	"reconnect": "closes and opens; N: 0 with true versions, 1 old ones, 2 foreign ones, 3 none",
	"deaf":      "N 1: stops reading, 0: reads again",
	// all
	"wait":    "N milliseconds pass",
	"save":    "the relay writes its snapshot (on the pure cores; over gRPC it does when it ends)",
	"restart": "the relay ends and starts again; N 1: it is killed (on the pure cores)",
	"room":    "there is room for types that had none (N 1), or none for who asks from now on",
	"hold":    "the relay does nothing by itself (on the pure cores)",
	"go":      "N of its parts act, or without N all of it from now on",
}

// String is the script as a file has it.
func (s Script) String() string {
	var b strings.Builder
	fmt.Fprintln(&b, s.Settings)
	for _, o := range s.Ops {
		fmt.Fprintln(&b, o)
	}
	return b.String()
}

func (s Settings) String() string {
	var words []string
	s.flags().VisitAll(func(f *flag.Flag) {
		if value := f.Value.String(); value != "" && value != "false" {
			words = append(words, f.Name, value)
		}
	})
	return strings.Join(words, " ")
}

func (o Op) String() string {
	words := []string{o.Verb, strconv.Itoa(o.Who)}
	if o.Kind != "" {
		words = append(words, o.Kind)
	}
	for _, name := range o.Add {
		words = append(words, "+"+name)
	}
	for _, name := range o.Drop {
		words = append(words, "-"+name)
	}
	if o.N != 0 {
		words = append(words, "="+strconv.Itoa(o.N))
	}
	return strings.Join(words, " ")
}

// Parse reads a script. Lines that begin with # are comments.
func Parse(text string) (s Script, err error) {
	begun := false
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
			continue
		case !begun:
			begun = true
			s.Settings, err = parseSettings(line)
		default:
			var o Op
			o, err = parseOp(line)
			s.Ops = append(s.Ops, o)
		}
		if err != nil {
			return s, fmt.Errorf("line %d: %w", n+1, err)
		}
	}
	return s, nil
}

func parseSettings(line string) (s Settings, err error) {
	flags, words := s.flags(), strings.Fields(line)
	for i := 0; i+1 < len(words) && err == nil; i += 2 {
		err = flags.Set(words[i], words[i+1])
	}
	return s, err
}

func parseOp(line string) (o Op, err error) {
	for i, word := range strings.Fields(line) {
		switch {
		case i == 0:
			o.Verb = word
		case word[0] == '+':
			o.Add = append(o.Add, word[1:])
		case word[0] == '-':
			o.Drop = append(o.Drop, word[1:])
		case word[0] == '=':
			o.N, err = strconv.Atoi(word[1:])
		case i == 1:
			o.Who, err = strconv.Atoi(word)
		default:
			o.Kind = word
		}
		if err != nil {
			return o, err
		}
	}
	if _, ok := verbs[o.Verb]; !ok {
		return o, fmt.Errorf("no such operation: %s", o.Verb)
	}
	return o, nil
}
