// Package xdstest owns the language in which this project's tests talk: the transcript, its runner, a fake control plane
// and fake clients over real gRPC, and the live player that puts a relay between them in a testing/synctest bubble.
//
// It never decides what a relay should do: it says what a file says, writes down what it hears, and compares. It imports no
// other package of the module, so every one of them can import it from its tests; Fingerprint is therefore a hook.
//
// # Files
//
// A transcript is testdata/<claim-in-kebab-case>.txt, one claim a file:
//
//	# A wildcard client that reconnects is sent only what changed while it was away.
//	# spec: RECON-10 DOWN-DELTA-10
//	# config: upstream.settle=0s
//	# show: nonce version id features via node
//	# edge: why it needs the edge
//
//	c1 > sub CDS * init=a@1,gone@7
//	up < open node=relay
//	up < sub CDS
//	up > resp CDS nonce=u1 a@1 b@2
//	up < ack CDS u1
//	c1 < resp CDS +b@2 -gone
//
// "actor > command" is said to the relay, "actor < event" is what the relay says. Between two ">" lines the "<" lines are
// compared per actor, in order, and are all there is: silence is asserted by absence. Only a line that ends in " ..." leaves
// its end open. "config" is handed to the relay as its --set; "show" adds fields to resp events that are otherwise
// left out, to open events the features that every relay has and the way by which it came, and to every request its node. Time stands still between the lines, except for "* > wait 15s".
// "* > restart" ends the relay, with every stream of clients and to the control plane, and starts another one; a config value
// STATE is a directory that outlives it.
//
// Every transcript is played twice by the tests of this package: over real gRPC, and against the pure parts alone, with no
// gRPC, goroutine or clock. "edge" marks the few that only the first can play, because what they show is done by a loop around
// the pure parts: a size limit, the time limit of a first message. The second skips them and prints the reason.
//
// # Open rules
//
// A rule that the relay does not keep yet is stated by a transcript all the same: what it says is what the rule wants. Its header
// names the rule, one of those it states, and the line at which the relay goes wrong ends in !open:
//
//	# spec: NODE-14 DOWN-DELTA-1
//	# open: NODE-14
//	…
//	c1 < resp CDS +a@1 !open
//
// Both players expect the first step that differs to be that one, and only the marked actors to differ in it; what follows is not
// played. Where the rule wants silence, the line is the mark alone ("c1 < !open"). A transcript that passes, or that goes wrong anywhere
// else, fails its test: who mends the rule deletes header and mark. -update leaves open transcripts alone.
//
// # Actors
//
// up, aux, solo and probe are the control plane's side of the relay's main, auxiliary, quarantine and probe streams, told apart by
// the request header x-xds-relay-stream (none means main). While up is open a second main stream is up2, and so on. b.up, b.aux, …
// are those of a second control plane, at 127.0.0.1:15011; every other upstream address leads to the first. Clients are c1, c2, ….
//
// # Words
//
// A type is a short name (LDS CDS RDS EDS SDS RTDS ECDS SRDS VHDS LEDS), FOO for type.googleapis.com/test.FOO, or a quoted type
// URL. A name with any character outside A-Z a-z 0-9 _ . / * ? - is written, and printed, as a quoted Go string.
// A resource is
//
//	name@version=label[alias,alias]{eds=service}{do_not_cache}~^:LDS(10s)
//
// where all but the name is optional: the body is made from the label, which is the version unless "=" says otherwise;
// {eds} or {eds=service} makes a Cluster of type EDS; {do_not_cache} sets cache_control; ~ leaves the body out; :LDS gives the Any another type than the
// response's; ^ puts the name into resource_name instead of name, ^^ into both; (10s) is the ttl. In what a client hears, @label is read from the body, and the player fails the test if the
// version on the wire is not the Fingerprint of that body (with version_identity=upstream in the config the version is
// printed as it is, as name@version=label). @? stands for a body or version the player did not make.
//
// # Commands of the control plane
//
//	up > resp CDS nonce=u1 id=NAME version=V a@1 -gone !x=NOT_FOUND"message"
//	up > end CODE "message"      ends that stream; without a code the status is OK
//	up > garbage                 sends a message that is no protobuf
//	up > down                    kills every connection to this control plane and refuses new ones
//	up > back                    accepts again
//	up > hang                    is stopped, and its connections stay: new ones are made, too, and what is said to it waits
//	up > wake                    goes on, and hears what has waited
//
// A control plane that hangs says nothing either, on any of its streams; down kills it, and back is another life. It is the
// whole of it that hangs: "b.up > hang" stops the second one.
//
// version is system_version_info, on a SotW stream version_info. On a SotW stream a resource is a bare Any unless it
// has aliases, a ttl or no body.
//
// # What the control plane hears
//
//	up < open node=ID                              the first message of a stream; "open sotw node=ID" for SotW ADS;
//	                                               then the other words of a node, via= if shown, and header= where set
//	up < sub CDS a b -c init=a@1,b@2               no nonce and no error; "sub CDS" alone is the legacy wildcard
//	up < ack CDS u1                                names after it would be a subscription carried by an ACK
//	up < nack CDS u1 INVALID_ARGUMENT "message"
//	up < req CDS a b nonce=u1 version=V err=CODE"message"   any request on a SotW stream
//	up < closed                                    the relay ended the stream, even one on which it said nothing
//
// The node in a later message is printed at its end, as node=ID and the other words, where it is another than the one last
// printed on that stream; with "show: node" it always is. A later message without a node has no such words.
//
// # Commands of a client
//
//	c1 > open delta|sotw [CDS] node=ID nonode header=key:value via=relay-1,relay-2 from=192.0.2.1
//	c1 > sub CDS a b -c init=a@1,gone@7,x@"literal" nonce=X err="message" loc=a,b
//	c1 > req CDS a b nonce=X version=V err="message" loc=a,b
//	c1 > ack CDS nonce=X
//	c1 > nack CDS "message" nonce=X
//	c1 > fetch CDS a b version="v" node=ID
//	c1 > close
//	c1 > garbage
//	c1 > empty-type a
//
// open, and any request, also says what a node is: node=ID cluster=X region=X zone=X sub_zone=X agent=X features=a,b
// metadata.KEY.KEY=text param.CDS.KEY=text (a dynamic parameter) unknown=text (a field of Node that nobody knows). In a request,
// node=ID begins a node that is repeated, or another one.
//
// With a type, open uses the method of that type instead of ADS. A client whose first line is not open opens Delta ADS; its
// node id is its actor name unless said otherwise. ack, nack and req answer the last response of the type; nonce=#2 names
// the second response of the type on the stream, nonce=#last the last, anything else is sent as it is. init versions
// are labels and are sent as the Fingerprint of that label's body; a quoted version is sent as it is. from is the address a
// client connects from, 127.0.0.1 unless said otherwise; it counts in a client's first open, since the connection stays. via is the way by which a stream has come.
//
// # What a client hears
//
//	c1 < resp CDS +a@1 +b@2 -gone !x=UNAVAILABLE"message"
//	c1 < end CODE "message"
//	c1 < fetched CDS +a@1 !x=NOT_FOUND"message"
//	c1 < fetched end CODE "message"
//
// Resources, removals and errors are each sorted by name. "chunks=N" is added when the nonce ends in -N and N is not 0.
// The player also fails the test on a missing or repeated nonce, a resource named twice in a response and an empty version_info.
//
// # Limitations
//
// No REST, no file sources, no more than two control planes, no dynamic parameter constraints beyond the
// names of resource locators, no metadata on a resource, and no client that stops reading.
package xdstest

// StateDir is the word for a directory that outlives a relay, as a config value.
const StateDir = "STATE"
