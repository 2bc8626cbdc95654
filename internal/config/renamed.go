package config

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/goccy/go-yaml/token"
)

// renamed has the old names of keys, by the section that they are in: old name → name. An old name works
// in the minor version that brings the new one, in the file and in --set, and [Config.Notes] asks for
// the new one. The next minor version refuses it, and its entry here goes (docs/versions.md). A key
// that moves to another section is no such key: meanwhile there are both.
var renamed = map[reflect.Type]map[string]string{}

// currentName is what a section calls a key now.
func currentName(section reflect.Type, name string) string {
	return cmp.Or(renamed[section][name], name)
}

// outdated notes that a key was written by its old name.
func (d *decoder) outdated(t *token.Token, key, old, now string) {
	msg := fmt.Sprintf("%q is the old name of %q, which the next minor version does not read", old, now)
	hint := "write " + now + ", which means the same"
	note := &Error{Origin: d.origin, Key: key, Msg: msg, Hint: hint}
	if d.origin == "" {
		note = d.prov.src.errorAt(t, key, msg, hint)
	}
	if d.prov.outdated == nil {
		d.prov.outdated = map[string]*Error{}
	}
	d.prov.outdated[key] = note
}

// outdated are the keys that were written by their old names.
func (v *validator) outdated() {
	if v.c.prov == nil {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(v.c.prov.outdated)) {
		v.errs = append(v.errs, v.c.prov.outdated[key])
	}
}
