package xdstest

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Resource is a resource as transcripts write it: name@version=label[alias]{eds=service}~:LDS(10s).
type Resource struct {
	Name     string
	Aliases  []string
	Version  string
	Literal  bool   // the version was written in quotes
	Label    string // what the body is made from
	EDS      bool   // a Cluster that asks EDS for its endpoints
	Service  string // under this name, if it is not the cluster's own
	Stale    bool   // endpoints that their client drops a minute after it was last sent them
	Bodyless bool
	TypeURL  string // of the Any, if it is not the response's
	TTL      time.Duration
	NoCache  bool // cache_control.do_not_cache
	// Qualified: the name is in resource_name instead of name; 2: in both.
	Qualified int
}

const resourceStops = "@=[{~:(^"

// noCache is the word for cache_control.do_not_cache.
const noCache = "do_not_cache"

// stale is the word for policy.endpoint_stale_after.
const stale = "stale"

// ParseResource reads the notation that testdata/README.md describes.
func ParseResource(s string) (Resource, error) {
	var r Resource
	fail := func(format string, args ...any) (Resource, error) {
		return Resource{}, fmt.Errorf("resource %s: %s", s, fmt.Sprintf(format, args...))
	}
	name, rest, _, err := word(s, resourceStops)
	if err != nil {
		return fail("%v", err)
	}
	r.Name = name
	labelled := false
	for rest != "" {
		mark := rest[0]
		rest = rest[1:]
		var inside string
		if closing := strings.IndexByte("[]{}()", mark); closing >= 0 && closing%2 == 0 {
			var found bool
			if inside, rest, found = strings.Cut(rest, "[]{}()"[closing+1:closing+2]); !found {
				return fail("%c is not closed", mark)
			}
		}
		switch mark {
		case '@':
			r.Version, rest, r.Literal, err = word(rest, resourceStops)
		case '=':
			r.Label, rest, _, err = word(rest, resourceStops)
			labelled = true
		case '~':
			r.Bodyless = true
		case '^':
			r.Qualified++
		case ':':
			var short string
			short, rest, _, err = word(rest, resourceStops)
			r.TypeURL = TypeURL(short)
		case '[':
			r.Aliases, err = wordList(inside)
		case '{':
			switch inside {
			case noCache:
				r.NoCache = true
				continue
			case stale:
				r.Stale = true
				continue
			}
			eds, service, _ := strings.Cut(inside, "=")
			if eds != "eds" {
				return fail("{%s} is not {eds}, {eds=service}, {stale} or {do_not_cache}", inside)
			}
			r.EDS = true
			r.Service, err = whole(service)
		case '(':
			r.TTL, err = time.ParseDuration(inside)
		default:
			return fail("unexpected %c", mark)
		}
		if err != nil {
			return fail("%v", err)
		}
	}
	if !labelled {
		r.Label = r.Version
	}
	return r, nil
}

// wordList reads words separated by commas.
func wordList(s string) ([]string, error) {
	parts, err := split(s, ",")
	for i := range parts {
		if err == nil {
			parts[i], err = whole(parts[i])
		}
	}
	return parts, err
}

// String is the inverse of ParseResource.
func (r Resource) String() string {
	var b strings.Builder
	b.WriteString(quote(r.Name))
	if r.Version != "" {
		b.WriteString("@" + quote(r.Version))
	}
	if r.Label != r.Version && !r.Bodyless {
		b.WriteString("=" + quote(r.Label))
	}
	b.WriteString(r.marks())
	return b.String()
}

// marks is everything behind version and label.
func (r Resource) marks() string {
	var b strings.Builder
	if len(r.Aliases) > 0 {
		b.WriteString("[" + strings.Join(quoteAll(slices.Sorted(slices.Values(r.Aliases))), ",") + "]")
	}
	if r.EDS {
		b.WriteString("{eds")
		if r.Service != "" {
			b.WriteString("=" + quote(r.Service))
		}
		b.WriteString("}")
	}
	if r.Stale {
		b.WriteString("{" + stale + "}")
	}
	if r.NoCache {
		b.WriteString("{" + noCache + "}")
	}
	if r.Bodyless {
		b.WriteString("~")
	}
	b.WriteString(strings.Repeat("^", r.Qualified))
	if r.TypeURL != "" {
		b.WriteString(":" + ShortName(r.TypeURL))
	}
	if r.TTL != 0 {
		b.WriteString("(" + r.TTL.String() + ")")
	}
	return b.String()
}
