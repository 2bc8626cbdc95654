package twin

// leniency is a case in which the judge accepts more than one outcome, with the rule that allows it. docs/testing.md
// has the table. A run prints how often it met each: one that is met too often hides something from the judge.
type leniency string

const (
	tables     leniency = "WILD-16: who asks for names may go from one table to the other, and be sent what it has, or what is older"
	renewals   leniency = "TTL-3: who knows TTLs may be sent again what is of a type of which something has had one"
	shared     leniency = "NAME-7: what is here for others answers an alias, and upstream may have more of that"
	lacking    leniency = "RECON-16: a wildcard's set may have become complete without what a slow server had yet to say"
	unheld     leniency = "ORDER-3: the client came with clusters, or its stream may be about to end"
	tooLarge   leniency = "ERR-13: what is too large for the client it need not have as it is"
	withheld   leniency = "DOWN-SOTW-7: the set waits for a name that has no answer, and what the client came with stays"
	limited    leniency = "TTL-12: the client came with a TTL of which a relay that has begun since knows nothing, or rejected what had it"
	standing   leniency = "UP-9: upstream has not taken back on its stream what it has no more"
	mute       leniency = "MISS-4: the stream has carried nothing of the type, and its silence takes nothing away"
	inError    leniency = "ERR-8: an error is upstream's last word on the name"
	faulted    leniency = "ERR-10: a faulty answer has spared what was there before"
	unspeaking leniency = "TRANSLATE-7: upstream's SotW does not say what is gone of this type"
	untold     leniency = "DOWN-SOTW-10: SotW does not tell a client what is gone of this type"
)

// excuse notes that a leniency was used. It is always true.
func (c *Checker) excuse(why leniency) bool {
	c.excused[why]++
	return true
}
