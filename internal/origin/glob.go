package origin

import (
	"iter"
	"slices"

	"github.com/xds-relay/xds-relay/cache"
)

// Covered returns names with what globs among them cover in their place (NAME-11). A glob that covers nothing stays.
func Covered(names []string, among ...iter.Seq[*cache.Resource]) (all []string) {
	if !slices.ContainsFunc(names, cache.IsGlob) {
		return names
	}
	empty := make(map[string]bool)
	for _, name := range names {
		if cache.IsGlob(name) {
			empty[name] = true
		} else {
			all = append(all, name)
		}
	}
	for _, resources := range among {
		for r := range resources {
			if _, asked := empty[r.Glob]; asked {
				empty[r.Glob] = false
				all = append(all, r.Name)
			}
		}
	}
	for glob, is := range empty {
		if is {
			all = append(all, glob)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
