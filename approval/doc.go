// Package approval keeps calls that wait for a person, and what the person decided.
//
// A request for an approval names one exact call: who makes it, by which capability, on which server, which tool, under
// which request id, with which arguments. An operator is shown the arguments and grants the call or denies it. A grant
// comes with a permit for that very call, and with nothing else: what the caller gets is the permit, which can be used
// once, within its time. Any other argument, tool or server is another request.
//
//	absent ──Request──► pending ──Grant──► granted (until its permit expires)
//	                       │  └────Deny───► denied  (for a day)
//	                       └──── expired: nobody decided in time
//
// What is over can be asked for anew. Of any number of operators who decide at the same time one decides; the others are
// told how.
package approval
