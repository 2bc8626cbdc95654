package twin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Settings are what a game's relay is configured with.
type Settings struct {
	Settle, Linger, Coalesce time.Duration
	Snapshot                 bool   // the last known good state is kept on disk
	SotW                     string // the control plane speaks only that; the relay knows (sotw), or finds out (auto)
	Server                   string // what kind it is: any of those in servers.go, with a comma between
	Second                   string // there is another control plane to turn to: with the same world, or its own (other)
	Bounds                   string // what is bounded to next to nothing: any of those in bounds.go, with a comma between
	Large                    bool   // a version in three is too large for a response, whose size is bounded
}

// Op is one operation. Any operation can be played at any time; one that makes no
// sense just then does nothing.
type Op struct {
	Verb      string
	Who       int    // a client, or a stream counted from the oldest
	Kind      string // a type's short name; "" where none is needed
	Add, Drop []string
	N         int
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
	text := fmt.Sprintf("settle %v linger %v coalesce %v", s.Settle, s.Linger, s.Coalesce)
	if s.Snapshot {
		text += " snapshot on"
	}
	if s.SotW != "" {
		text += " upstream " + s.SotW
	}
	if s.Server != "" {
		text += " server " + s.Server
	}
	if s.Second != "" {
		text += " second " + s.Second
	}
	if s.Bounds != "" {
		text += " bounds " + s.Bounds
	}
	if s.Large {
		text += " large on"
	}
	return text
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
	words := strings.Fields(line)
	for len(words) >= 2 && err == nil {
		var d time.Duration
		if slices.Contains([]string{"settle", "linger", "coalesce"}, words[0]) {
			d, err = time.ParseDuration(words[1])
		}
		switch words[0] {
		case "settle":
			s.Settle = d
		case "linger":
			s.Linger = d
		case "coalesce":
			s.Coalesce = d
		case "snapshot":
			s.Snapshot = words[1] == "on"
		case "upstream":
			s.SotW = words[1]
		case "server":
			s.Server = words[1]
		case "second":
			s.Second = words[1]
		case "bounds":
			s.Bounds = words[1]
		case "large":
			s.Large = words[1] == "on"
		default:
			return s, fmt.Errorf("no such setting: %s", words[0])
		}
		words = words[2:]
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
