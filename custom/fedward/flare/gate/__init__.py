"""The gate: which messages FLARE's processes accept, and from whom.

It decides about a message by its connection, before anything in it is decoded. What it then says to
a site's process, or to the server's process of a job, is looked at again before it is done.

FLARE 2.9 passes a message on to whichever cell its header names, once the sender has a token. A
site's process obeys everybody who reaches it, because it checks rights only if the sender's own
header asks for that. Anybody with a startup kit, of any role, can therefore have a command run at
every hospital. The gate closes both ends:

- A cell accepts a message only from the neighbours that it has in a federation of fedward: a site
  from its server and its own jobs, the server from sites, users and its own jobs. FLARE has
  compared a neighbour's name with the certificate of its connection. The headers are the sender's
  own words, and must agree with that name (:mod:`.decisions`).
- The server forwards nothing from one site or user to another.
- A request is accepted only if :mod:`.requests` names it for this receiver and this sender. FLARE's
  own network diagnostics, with which anybody could stop a cell or connect it to another server, are
  not among them.
- A cell speaks of itself alone: it takes leave of its neighbours, and says of no other site that it
  was not reached.
- A site's process takes from its server only the commands in :mod:`.commands`, and checks itself
  whether the user has the right to each. It checks what a command hands to its resource manager.
- The server's process of a job hears the sites of that job alone (:mod:`.speakers`).
- A site or user has a few streams open at a receiver, and no more (:mod:`.streams`).
- The server hears no site that an administrator has shut out (:mod:`.shut_out`).
- A server that is starting accepts no message before it knows its own certificate
  (:mod:`.server_start`).

A refused message gets no answer. A command from the server that a site does not obey is answered
with the reason; what the server's process of a job does not hear is answered with an error alone.
The participant that refused writes refusals into its audit log, with the sender; of a flood it
writes the first ones and the number of the others (:mod:`.refusals`).

:mod:`.hooks` puts all of this into FLARE, and is the only module that changes it.
docs/flare_changes.md says what FLARE itself does, in which versions.
"""
