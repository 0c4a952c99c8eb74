/* The commit protocol of package ipset: two engines with stale caches on one store. README.md says what holds.
 *
 * Parameters (-D): CALLS of engine 0 and CALLS1 of engine 1, UNK commits of unknown outcome (each is made at any later moment or never), CRASH, TICKS of
 * the clock (a tick ends a lease and makes an empty block idle), SETBACK of the store, NA addresses in blocks of APB, AUTO the
 * handle that AutoAssign uses too, with a lease if TICKS (0: none), SKEW how far the clock of engine 1 is ahead, PROOF what shows
 * after a set-back that an engine saw the lost past: 1 any answer of it (sqlstore), 0 a record of it (etcdstore). */
#ifdef TRACE                    /* trace.go reads what these print: each attempt to commit, with the store before and after, and where calls begin */
#define SAY(...) skip
#define STEP(...) printf(__VA_ARGS__)
#define SHOW() d_step { for (k : 0 .. NB-1) { printf(" %d %d %d", st.b[k].top, st.b[k].own, st.b[k].since) } \
  for (k : 0 .. NA-1) { printf(" %d %d %d %d", HOLD(st,k), SEQ(st,k), UNTIL(st,k), FST(st,k)) } printf(" %d %d %d %d %d", st.g[1]!=0, st.g[2]!=0, st.q!=0, st.qa, st.qs) }
#define EXPECT() d_step { printf(" |"); for (i : 0 .. NB-1) { if :: (T.gb & (1<<i)) -> printf(" %d %d", T.d.b[i].rev, st.b[i].rev) :: else fi } \
  if :: T.gg -> printf(" %d %d", T.d.g[T.h], st.g[T.h]) :: else fi; if :: T.gq -> printf(" %d %d", T.d.q, st.q) :: else fi; printf(" |") }
#else
#define SAY printf
#define STEP(...) skip
#define SHOW() skip
#define EXPECT() skip
#endif
#define TRIES 3                 /* occ/runner.go: Attempts; after that the call ends in ErrGaveUp */
#define NB (NA/APB)
#define NONE NA
#define CLOCK(e) (now+e*SKEW)
#define NO 255                  /* cache: nothing is known of the record */
#define ASK 254                 /* cache: read it before the next plan (occ/retry.go: again) */
#define ASSIGN 1
#define RELHANDLE 2
#define RELIP 3
#define AUTOASSIGN 4
#define RENEW 5
#define BL(a) ((a)/APB)
#define SL(a) ((a)%APB)
#define HOLD(d,a) d.b[BL(a)].hold[SL(a)]
#define SEQ(d,a) d.b[BL(a)].seq[SL(a)]
#define UNTIL(d,a) d.b[BL(a)].until[SL(a)]
#define FST(d,a) d.b[BL(a)].first[SL(a)]
#define EMPTY(d,i) (d.b[i].hold[0]==0 && d.b[i].hold[APB-1]==0)
#define NEWREV(x) x = x+1

/* A block with its addresses is one record: the address records are written in the block's commit, on its revision
 * (store/README.md "What ipset keeps").  The index of a handle follows from them (record/index.go), so it is not stored. */
typedef Blk { byte rev, own, since, top; byte hold[APB]; byte seq[APB]; byte until[APB]; byte first[APB] };
typedef Db  { Blk b[NB];
              byte g[3], gtop[3];     /* the index record of a handle's first holding (txn/first.go): its revision, 0 absent; the last one it had */
              byte q, qa, qs };       /* the answer under the request key (record/memo.go): revision, address, seq */
/* A commit: contents b, g, q hold the expected revisions; masks say what is guarded (expected) and what is written. */
typedef Txn { Db d; byte op, h, a, s, u; bit fresh, gg, wg, gq, wq; byte gb, wb, drop, dg[3]; bit on, orphan, gone, past };

Db st;  Db c[2];  Db sn;        /* the store, the caches, the state that a set-back restores */
Txn p[2];                       /* commits of unknown outcome that may still be made */
byte lf[2], lr[2];              /* occ/fence.go: the lost commit by one of its expectations, block+1 and revision */
byte now = 1, unk = UNK, crash = CRASH, ticks = TICKS, done = 0;
bit snapped, back, newer[2], repl[2]; byte dirty;        /* records written since the snapshot: bits 0 to 2 blocks, 3,4 guards, 5 key */
/* The oracle: what callers were told. */
byte hd[NA], hs[NA], hu[NA]; bit hassign[NA], hnew[NA], anew[NA];       /* address: holder, seq, lease end; by Assign; each since the snapshot */
byte ta[3], ts[3]; bit tnew[3];                          /* handle: the last address (+1) and seq that it was told */
byte mb[3];                                              /* handle: engines of which a call for it failed or has an unknown outcome */
byte cl[2]; /* engine that releases a handle: whose doubts that settles */
byte ka, ks; bit knew;                                   /* the answer of the request key */
hidden byte i, j, k, pick, t2, ok; hidden Txn T;         /* scratch, of one step */

inline cpb(x,y) { x.rev=y.rev; x.own=y.own; x.since=y.since; x.top=y.top;
  for (j : 0 .. APB-1) { x.hold[j]=y.hold[j]; x.seq[j]=y.seq[j]; x.until[j]=y.until[j]; x.first[j]=y.first[j] } }
inline cpd(x,y) { for (i : 0 .. NB-1) { cpb(x.b[i],y.b[i]) }
  for (i : 1 .. 2) { x.g[i]=y.g[i]; x.gtop[i]=y.gtop[i] } x.q=y.q; x.qa=y.qa; x.qs=y.qs }
inline cpt(x,y) { cpd(x.d,y.d); x.op=y.op; x.h=y.h; x.a=y.a; x.s=y.s; x.u=y.u; x.fresh=y.fresh; x.gg=y.gg; x.wg=y.wg; x.gq=y.gq;
  x.wq=y.wq; x.gb=y.gb; x.wb=y.wb; x.dg[1]=y.dg[1]; x.dg[2]=y.dg[2]; x.drop=y.drop; x.on=y.on; x.orphan=y.orphan; x.gone=y.gone; x.past=y.past }
inline zero(x) { x.rev=0; x.own=0; x.since=0; x.top=0; for (j : 0 .. APB-1) { x.hold[j]=0; x.seq[j]=0; x.until[j]=0; x.first[j]=0 } }
inline clearT() { for (i : 0 .. NB-1) { zero(T.d.b[i]) } for (i : 1 .. 2) { T.d.g[i]=0; T.d.gtop[i]=0 } T.d.q=0; T.d.qa=0; T.d.qs=0;
  T.op=0; T.h=0; T.a=0; T.s=0; T.u=0; T.fresh=0; T.gg=0; T.wg=0; T.gq=0; T.wq=0; T.gb=0; T.wb=0; T.dg[1]=0; T.dg[2]=0; T.drop=0;
  T.on=0; T.orphan=0; T.gone=0; T.past=0 }
inline forgetblock(e,i) { zero(c[e].b[i]); c[e].b[i].rev = NO }
inline wipe(e) { for (i : 0 .. NB-1) { forgetblock(e,i) } for (i : 1 .. 2) { c[e].g[i]=NO; c[e].gtop[i]=0 } c[e].q=NO; c[e].qa=0; c[e].qs=0; lf[e]=0; lr[e]=0 }

/* The law that is checked after every change: what was acknowledged and not given back is so in the store. */
inline law() { for (i : 0 .. NA-1) { assert(hd[i]==0 || (HOLD(st,i)==hd[i] && SEQ(st,i)==hs[i])) } }

/* Reading: records of the lost past that an engine sees are its proof later (sqlstore/past.go, etcdstore/past.go). */
inline readblock(e,i) { cpb(c[e].b[i], st.b[i]); if :: dirty & (1<<i) -> newer[e]=1 :: else fi }
inline answered(e) { if :: PROOF && dirty -> newer[e]=1 :: else fi }
inline load(e) { answered(e);                                        /* txn/read.go: Warm, Fetch; occ/retry.go: again */
  for (i : 0 .. NB-1) { if :: c[e].b[i].rev==NO -> readblock(e,i) :: else fi }
  for (i : 1 .. 2) { if :: c[e].g[i]==ASK -> c[e].g[i]=st.g[i]; if :: dirty & (4<<i) -> newer[e]=1 :: else fi :: else fi }
  if :: c[e].q==ASK -> c[e].q=st.q; c[e].qa=st.qa; c[e].qs=st.qs; if :: dirty & 32 -> newer[e]=1 :: else fi :: else fi }

/* Time ends leases in every plan that meets the block (txn/due.go, block/time.go). */
inline advance(tn) { for (k : 0 .. NA-1) {
  if :: HOLD(T.d,k)!=0 && UNTIL(T.d,k)!=0 && UNTIL(T.d,k)+SKEW<=tn -> leave(k, UNTIL(T.d,k)) :: else fi } }
inline leave(x,tn) {                                      /* block.Leave; its index records go with it (record/index.go) */
  if :: FST(T.d,x) -> T.dg[HOLD(T.d,x)] = 1<<BL(x) :: else fi;
  HOLD(T.d,x)=0; if :: EMPTY(T.d,BL(x)) -> T.d.b[BL(x)].since=tn :: else fi; SEQ(T.d,x)=0; UNTIL(T.d,x)=0; FST(T.d,x)=0 }

inline begin(e,o,hh,tn) { clearT(); cpd(T.d, c[e]); T.op=o; T.h=hh; T.past=newer[e];
  for (i : 1 .. 2) { if :: T.d.g[i]>=ASK -> T.d.g[i]=0 :: else fi } /* not known: taken for absent, which the commit verifies */
  if :: T.d.q>=ASK -> T.d.q=0; T.d.qa=0; T.d.qs=0 :: else fi;
  advance(tn); pick=NONE }

/* A new first holding writes the end of the one before, whose block would delete the record later (txn/first.go: EndedFirst). */
inline endfirst() { T.wb = T.wb | T.dg[T.h]; T.gb = T.gb | T.dg[T.h] }

/* assign/assign.go, request.go, walk.go, meet.go, commit.go */
inline planassign(e,tn,lst) {
  if
  :: T.op==ASSIGN ->                                      /* request.go: existing */
     T.gg=1;
     for (k : 0 .. NA-1) { if :: lst & (1<<k) -> T.gb = T.gb | (1<<BL(k));      /* the first holding, else the lowest address */
       if :: HOLD(T.d,k)==T.h && (pick==NONE || FST(T.d,k)) -> pick=k :: else fi :: else fi }
  :: else ->                                              /* assign.go: replay; txn/memo.go: Recall */
     T.gq=1;
     if :: T.d.q!=0 -> k=T.d.qa; T.gb = T.gb | (1<<BL(k)); if :: HOLD(T.d,k)==T.h && SEQ(T.d,k)==T.d.qs -> pick=k :: else fi :: else fi
  fi;
  if
  :: pick!=NONE ->                                        /* the answer is what is held; Assign makes it the first holding */
     if :: T.op==ASSIGN && !FST(T.d,pick) -> FST(T.d,pick)=1; T.wg=1; T.wb = T.wb | (1<<BL(pick)); endfirst() :: else fi
  :: else ->
     for (k : 0 .. NA-1) { if :: T.d.b[BL(k)].own==e -> T.gb = T.gb | (1<<BL(k)); if :: pick==NONE && HOLD(T.d,k)==0 -> pick=k :: else fi :: else fi }
     for (k : 0 .. NA-1) {                                /* meet.go: standing, takeOver: another's, empty for a minute */
       if :: pick==NONE && T.d.b[BL(k)].own!=e && EMPTY(T.d,BL(k)) && T.d.b[BL(k)].since+1<=tn -> pick=k; T.d.b[BL(k)].own=e :: else fi }
     for (k : 0 .. NA-1) { if :: pick==NONE && HOLD(T.d,k)==0 -> pick=k :: else fi }      /* pickForeign: borrowed */
     if
     :: pick==NONE -> T.gb=(1<<NB)-1                         /* full: the commit verifies what was passed over */
     :: else -> T.fresh=1; T.gb = T.gb | (1<<BL(pick)); T.wb = 1<<BL(pick); T.d.b[BL(pick)].top++;
        HOLD(T.d,pick)=T.h; SEQ(T.d,pick)=T.d.b[BL(pick)].top; UNTIL(T.d,pick)=((TICKS>0 && T.h==2) -> tn+1 : 0);
        T.d.b[BL(pick)].since=0;
        if :: T.op==ASSIGN -> T.wg=1; FST(T.d,pick)=1; endfirst() :: else -> T.wq=1; T.d.qa=pick; T.d.qs=SEQ(T.d,pick) fi
     fi
  fi;
  T.a=pick; if :: pick!=NONE -> T.s=SEQ(T.d,pick); T.u=UNTIL(T.d,pick) :: else fi }

/* release/plan.go: ofHandle (of the places that the index named), byName (CanDrop: the guard names handle and sequence number) */
inline planrelease(lst,a,s) { T.s=s; for (k : 0 .. NA-1) {
  if
  :: (lst & (1<<k)) -> T.gb = T.gb | (1<<BL(k));
     if :: HOLD(T.d,k)==T.h && (T.op==RELHANDLE || SEQ(T.d,k)==s) -> leave(k,tn); T.drop = T.drop | (1<<k); T.wb = T.wb | (1<<BL(k)) :: else fi
  :: else fi } }

/* renew.go: another end for the holding that the guard names, if it is not over */
inline planrenew(a,s,tn) { T.a=NONE; T.gb = 1<<BL(a);
  if :: HOLD(T.d,a)==T.h && SEQ(T.d,a)==s -> UNTIL(T.d,a)=tn+1; T.wb=T.gb; T.a=a; T.s=s; T.u=tn+1 :: else fi }

/* store.go Commit: every expectation, then every change.  A commit of an engine whose past is lost is refused. */
inline check() { ok = !(back && T.past);
  for (i : 0 .. NB-1) { if :: (T.gb & (1<<i)) && st.b[i].rev!=T.d.b[i].rev -> ok=0 :: else fi }
  if :: T.gg && st.g[T.h]!=T.d.g[T.h] -> ok=0 :: else fi;
  if :: T.gq && st.q!=T.d.q -> ok=0 :: else fi }
inline apply() {
  for (i : 0 .. NB-1) { if :: (T.wb & (1<<i)) -> k=st.b[i].rev+1; cpb(st.b[i],T.d.b[i]); st.b[i].rev=k; dirty = dirty | (snapped<<i) :: else fi }
  for (i : 1 .. 2) { if :: T.wb & T.dg[i] -> st.g[i]=0 :: else fi }      /* index records: AnyRevision */
  if :: T.wg -> st.gtop[T.h]++; st.g[T.h]=st.gtop[T.h]; dirty = dirty | (snapped<<(2+T.h)) :: else fi;
  if :: T.wq -> st.q++; st.qa=T.d.qa; st.qs=T.d.qs; dirty = dirty | (snapped<<5) :: else fi }
inline forget(e,v) {                                      /* occ/txn.go: forget; v is ASK where again reads the records */
  for (k : 0 .. NB-1) { if :: (T.gb & (1<<k)) -> forgetblock(e,k) :: else fi }
  if :: T.gg -> c[e].g[T.h]=v :: else fi; if :: T.gq -> c[e].q=v; c[e].qa=0; c[e].qs=0 :: else fi }
inline settled(e) {                                       /* occ/txn.go: settle; the cache has what was written */
  for (i : 0 .. NB-1) { if :: (T.wb & (1<<i)) -> cpb(c[e].b[i],st.b[i]) :: else fi }
  for (i : 1 .. 2) { if :: (T.wb & T.dg[i]) && c[e].g[i]<ASK -> c[e].g[i]=0 :: else fi }
  if :: T.wg || (T.gg && c[e].g[T.h]>=ASK) -> c[e].g[T.h]=st.g[T.h] :: else fi;
  if :: T.wq || (T.gq && c[e].q>=ASK) -> c[e].q=st.q; c[e].qa=st.qa; c[e].qs=st.qs :: else fi;
  if :: snapped && T.wb -> newer[e]=1 :: else fi }

inline drops() { for (i : 0 .. NA-1) { if :: (T.drop & (1<<i)) && hd[i]==T.h && (T.op==RELHANDLE || hs[i]==T.s) -> hd[i]=0 :: else fi } }
inline acked(e) {                                         /* the caller gets its answer: the laws about answers */
  if
  :: (T.op==ASSIGN || T.op==AUTOASSIGN || T.op==RENEW) && T.a!=NONE && (T.u==0 || T.u>now) ->
     k=T.a;
     assert(hd[k]==0 || (hd[k]==T.h && hs[k]==T.s));                                  /* an address has one holder */
     for (i : 0 .. NA-1) { assert(T.op!=ASSIGN || i==k || hd[i]!=T.h || !hassign[i]) }  /* Assigns of a handle agree */
     if :: T.op==AUTOASSIGN -> assert(ka==0 || hd[ka-1]!=T.h || hs[ka-1]!=ks || (ka==k+1 && ks==T.s)); /* a key answers once */
           assert(T.fresh || UNK>0 || ka==0 || (ka==k+1 && ks==T.s)); ka=k+1; ks=T.s; knew=snapped :: else fi;
     if :: hd[k]==0 -> hnew[k]=snapped; hassign[k]=0 :: else fi;
     hd[k]=T.h; hs[k]=T.s; hu[k]=T.u;
     if :: T.op==ASSIGN && !hassign[k] -> hassign[k]=1; anew[k]=snapped :: else fi;
     ta[T.h]=k+1; ts[T.h]=T.s; tnew[T.h]=snapped
  :: else -> drops(); if :: T.op==RENEW && T.a!=NONE && hd[T.a]==T.h && hs[T.a]==T.s -> hd[T.a]=0 :: else fi    /* over by now */
  fi }
/* ReleaseByHandle that is answered settles the lost calls of its engine, and those that had come to an end when it listed the index. */
inline cansettle(e,hh) { cl[e]=0; for (i : 0 .. 1) { if :: p[i].on && p[i].h==hh && (i!=e || p[i].orphan) -> skip :: else -> cl[e] = cl[e] | (1<<i) fi } }
inline doubt(e,o,hh) { mb[hh] = mb[hh] | (1<<e); cl[0] = cl[0] & ~(1<<e); cl[1] = cl[1] & ~(1<<e) }

inline commit(e,late) {
  STEP("M %d %d %d %d %d %d %d %d %d %d %d %d %d",e,T.op,T.h,a,s,lst,tn,T.gb,T.gg,T.gq,T.a,T.s,T.fresh); SHOW();
  check(); EXPECT(); if :: !repl[e] && !(ok && late && T.wb) -> answered(e) :: else fi;
  if
  :: repl[e] -> res=4                                     /* ErrReplaced: the process ends */
  :: !repl[e] && !ok -> res=2; forget(e,ASK)
  :: !repl[e] && ok && late && T.wb -> res=3; unk--; T.on=1; forget(e,NO); cpt(p[e],T);
     i=0; do :: !(T.gb & T.wb & (1<<i)) -> i++ :: else -> break od; lf[e]=i+1; lr[e]=T.d.b[i].rev   /* fence.go: lose; txn.go: fence, rank 3 */
  :: !repl[e] && ok && !(late && T.wb) -> res=1; apply(); acked(e); settled(e); law();
     if :: T.op==RELHANDLE -> mb[T.h] = mb[T.h] & ~cl[e] :: else fi
  fi; SAY("E%d commit op %d h %d: res %d (1 done 2 conflict 3 unknown 4 replaced) address %d seq %d fresh %d writes %d\n", e,T.op,T.h,res,T.a,T.s,T.fresh,T.wb); STEP(" %d",res); SHOW(); STEP("\n"); clearT() }

/* A release that fails has freed nothing, although its caller no longer counts on the address. */
inline gaveup(e,o,hh) { if :: c[e].g[hh]==ASK -> c[e].g[hh]=NO :: else fi; if :: c[e].q==ASK -> c[e].q=NO :: else fi; /* occ/retry.go: forgotten */
  if :: o==RELHANDLE || o==RELIP -> doubt(e,o,hh) :: else fi }

proctype Engine(byte e) {
  byte n=(e==0 -> CALLS : CALLS1), op, h, tries, lst, a, s, tn, res; bit late;
idle: atomic { op=0; h=0; tries=0; lst=0; a=0; s=0; tn=0; res=0; cl[e]=0; late=0;
  if
  :: n==0 -> goto end
  :: crash>0 -> d_step { crash--; SAY("crash E%d\n",e); wipe(e); newer[e]=0; repl[e]=0; if :: p[e].on -> p[e].orphan=1 :: else fi }; goto idle
  :: n>0 -> n--; d_step { STEP("I %d %d %d %d %d %d",e,CLOCK(e),ta[1],ts[1],ta[2],ts[2]); SHOW(); STEP("\n"); k=0 };
     if :: h=1 :: h=2 fi;
     if
     :: op=ASSIGN
     :: op=RELHANDLE; d_step { for (i : 0 .. NA-1) { if :: hd[i]==h -> hd[i]=0 :: else fi } k=0 }   /* the caller gives up what it has */
     :: ta[h]!=0 -> op=RELIP; a=ta[h]-1; s=ts[h]; d_step { lst=1<<a; if :: hd[a]==h && hs[a]==s -> hd[a]=0 :: else fi }
     :: h==AUTO -> op=AUTOASSIGN
     :: h==AUTO && TICKS>0 && ta[h]!=0 -> op=RENEW; a=ta[h]-1; s=ts[h]
     fi
  fi; SAY("E%d call op %d (1 Assign 2 ReleaseByHandle 3 ReleaseIPs 4 AutoAssign 5 Renew) h %d a %d seq %d\n",e,op,h,a,s) }
settle:                                                   /* fence.go: settle, before anything is planned or read (txn/settled.go) */
  if
  :: lf[e]==0 -> skip
  :: lf[e]!=0 -> atomic { if :: repl[e] -> goto dead :: else fi;
       d_step { i=lf[e]-1; t2=lr[e]; forgetblock(e,i); answered(e); if :: dirty & (1<<i) -> newer[e]=1 :: else fi; if :: st.b[i].rev!=t2 -> lf[e]=0; lr[e]=0 :: else fi } };
     if
     :: lf[e]==0 -> skip
     :: lf[e]!=0 -> atomic { if :: repl[e] -> goto dead :: else fi;
          if :: late=0 :: unk>0 -> late=1 :: unk>0 -> unk--; gaveup(e,op,h); goto idle fi;   /* done; unknown: made, not made */
          d_step { i=lf[e]-1; ok=(st.b[i].rev==lr[e]); if :: ok -> NEWREV(st.b[i].rev); dirty = dirty | (snapped<<i); lf[e]=(late->lf[e]:0); lr[e]=(late->lr[e]:0) :: else fi;
            if :: ok && snapped && !late -> newer[e]=1 :: else fi; if :: ok && late -> unk-- :: else fi; res=(ok->(late->3:1):2); late=0; law(); SAY("E%d fence: res %d\n",e,res) } };
        if :: res==3 -> atomic { gaveup(e,op,h); goto idle } :: else -> res=0; goto settle fi
     fi
  fi;
  atomic { d_step { p[e].gone=(p[e].on && !p[e].orphan && !repl[e]); tn=CLOCK(e) } };
plan: if :: tries>0 -> atomic { if :: repl[e] -> goto dead :: else -> d_step { load(e) } fi } :: else fi;
list: if
  :: op==ASSIGN || (op==RELHANDLE && tries==0) -> atomic { /* txn/held.go HeldBy, release.go IDs: the index as it is now */
     if :: repl[e] -> goto dead :: else fi;
     d_step { answered(e); lst=0; for (i : 0 .. NA-1) { if :: HOLD(st,i)==h -> lst = lst | (1<<i) :: else fi };
       if :: op==ASSIGN -> c[e].g[h]=st.g[h]; if :: dirty & (4<<h) -> newer[e]=1 :: else fi :: else fi;   /* txn/held.go: See */
       if :: op==RELHANDLE -> cansettle(e,h); if :: lst==0 -> mb[h] = mb[h] & ~cl[e] :: else fi :: else fi; SAY("E%d list h %d: %d\n",e,h,lst) };
     if :: op==RELHANDLE && lst==0 -> goto idle :: else fi }
  :: else fi;
  if :: c[e].b[0].rev==NO || c[e].b[NB-1].rev==NO -> atomic { if :: repl[e] -> goto dead :: else -> d_step { load(e) } fi }
     :: else fi;
  atomic { late=0; if :: true :: unk>0 && !p[e].on -> late=1 fi;
    d_step { begin(e,op,h,tn);
      if :: op==ASSIGN || op==AUTOASSIGN -> planassign(e,tn,lst) :: op==RENEW -> planrenew(a,s,tn) :: else -> planrelease(lst,a,s) fi;
      commit(e,late); late=0 };
    if
    :: res==1 -> goto idle
    :: res==2 && tries<TRIES-1 -> tries++; res=0; d_step { tn=CLOCK(e) }; goto plan
    :: res==2 && tries==TRIES-1 -> gaveup(e,op,h); goto idle
    :: res==3 -> doubt(e,op,h); goto idle
    :: res==4 -> goto dead
    fi };
dead: atomic { SAY("E%d ErrReplaced\n",e); gaveup(e,op,h); d_step { wipe(e); newer[e]=0; repl[e]=0; p[e].gone=0; if :: p[e].on -> p[e].orphan=1 :: else fi }; goto idle };
end: done++ }

/* What happens beside the engines: late commits, time, a sweep, the set-back; at the end the law at rest. */
proctype World() { byte e; byte setback=SETBACK;
  do
  :: atomic { done<2 && (p[0].on || p[1].on) -> if :: p[0].on -> e=0 :: p[1].on -> e=1 fi;
     d_step { cpt(T,p[e]); STEP("L %d %d %d %d %d %d %d %d %d",e,T.op,T.h,T.drop,T.gb,T.gg,T.gq,T.a,T.s); SHOW(); check(); EXPECT();
       if :: ok -> apply(); if :: !p[e].gone -> drops() :: else fi; law() :: else fi; SAY("late commit of E%d op %d h %d a %d: made %d\n",e,T.op,T.h,T.a,ok); STEP(" %d",ok); SHOW(); STEP("\n");
       clearT(); cpt(p[e],T) } ; e=0 }
  :: atomic { ticks>0 -> ticks--; d_step { now++; SAY("tick %d\n",now); for (i : 0 .. NA-1) { if :: hd[i]!=0 && hu[i]!=0 && hu[i]<=now -> hd[i]=0 :: else fi } k=0 } }
  :: atomic { setback>0 && !snapped -> d_step { snapped=1; SAY("snapshot\n"); cpd(sn,st); for (i : 0 .. NA-1) { hnew[i]=0; anew[i]=0 } tnew[1]=0; tnew[2]=0; knew=0 } }
  :: atomic { setback>0 && snapped -> setback=0; d_step { snapped=0; back=1; SAY("set back\n"); dirty=0; cpd(st,sn); clearT(); cpd(sn,T.d);
       for (i : 0 .. 1) { repl[i]=newer[i]; p[i].gone=0 }
       for (i : 0 .. NA-1) { if :: hnew[i] -> hd[i]=0 :: anew[i] && !hnew[i] -> hassign[i]=0 :: else fi; anew[i]=0 }
       for (i : 1 .. 2) { if :: tnew[i] -> ta[i]=0 :: else fi } if :: knew -> ka=0; ks=0 :: else fi; law(); k=0 } }
  :: done==2 -> break
  od;
  atomic { true; if :: !back ->
    for (i : 0 .. NA-1) { k=HOLD(st,i); assert(k==0 || hd[i]==k || mb[k]!=0 || (UNTIL(st,i)!=0 && UNTIL(st,i)<=now)) } /* nothing is left */
    for (i : 1 .. 2) { ok=0; for (j : 0 .. NA-1) { if :: HOLD(st,j)==i && FST(st,j) -> ok++ :: else fi }
      assert(ok<2 && (st.g[i]!=0)==ok) }                  /* the guard goes with its holding */
  :: else fi } }

init { d_step { for (i : 0 .. NB-1) { st.b[i].rev=1; st.b[i].own=i%2; st.b[i].since=1 } wipe(0); wipe(1) }; atomic { run World(); run Engine(0); run Engine(1) } }
