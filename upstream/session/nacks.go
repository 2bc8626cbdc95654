package session

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// Nack is a resource that the control plane has announced in a form that cannot be used, and not in another one
// since (ERR-10).
type Nack struct {
	Type cache.TypeURL
	Name string
	// At is when it came, and Details what the control plane was told.
	At      time.Time
	Details string
}

// maxNacks bounds how many a group remembers.
const maxNacks = 256

// nacks are those of a group, oldest first.
type nacks struct{ list []Nack }

// take takes in a response, and how it was rejected; "" if it was not.
func (n *nacks) take(d *Response, details string, now time.Time) {
	if len(n.list) > 0 {
		n.settle(d)
	}
	if details == "" {
		return
	}
	for _, name := range d.Update.Malformed {
		if name != "" {
			n.list = append(n.list, Nack{d.TypeURL, name, now, details})
		}
	}
	if more := len(n.list) - maxNacks; more > 0 {
		n.list = slices.Delete(n.list, 0, more)
	}
}

// settle forgets what a response brings again, and what does not exist any more.
func (n *nacks) settle(d *Response) {
	u := &d.Update
	whole := u.Full || u.Sweep
	said := make(map[string]bool)
	for _, r := range u.Set {
		said[r.Resource.Name] = true
	}
	for _, names := range [][]string{u.Removed, u.Malformed} {
		for _, name := range names {
			said[name] = true
		}
	}
	n.list = slices.DeleteFunc(n.list, func(nack Nack) bool {
		return nack.Type == d.TypeURL && (whole || said[nack.Name])
	})
}
