/* The commit protocol of package ipset: two engines with stale caches on one store. README.md says what holds.
 *
 * Parameters (-D): CALLS of engine 0 and CALLS1 of engine 1, UNK commits of unknown outcome (each is made at any later moment or never), CRASH, TICKS of
 * the clock (a tick ends a lease and makes an empty block idle), SETBACK of the store, NA addresses in blocks of APB, AUTO the
 * handle that AutoAssign uses too, with a lease if TICKS (0: none), SKEW how far the clock of engine 1 is ahead, PROOF what shows
 * after a set-back that an engine saw the lost past: 1 any answer of it (sqlstore), 0 a record of it (etcdstore). */
#ifdef TRACE                    /* trace_test.go reads each attempt to commit, with the store before and after, and where calls begin */
#define SHOW() d_step { for (k : 0 .. NB-1) { printf(" %d %d %d", st.top[k], st.own[k], st.since[k]) } \
  for (k : 0 .. NA-1) { printf(" %d %d %d %d", st.hold[k], st.seq[k], st.until[k], st.first[k]) } printf(" %d %d %d %d %d", st.rev[G(1)]!=0, st.rev[G(2)]!=0, st.rev[Q]!=0, st.qa, st.qs) }
#define EXPECT() d_step { printf(" |"); for (i : 0 .. NR-1) { if :: T.g & (1<<i) -> printf(" %d %d", T.d.rev[i], st.rev[i]) :: else fi } printf(" |") }
#else
#define SHOW() skip
#define EXPECT() skip
#endif
#define TRIES 3                 /* occ/runner.go: Attempts; after that the call ends in ErrGaveUp */
#define NB (NA/APB)
#define G(h) (NB-1+h)           /* records: the blocks, the first holding of handle 1 and of handle 2 (txn/first.go), */
#define Q (NB+2)                /* the answer under the request key (record/memo.go) */
#define NR (NB+3)
#define NONE NA
#define CLOCK(e) (now+e*SKEW)
#define NO 255                  /* cache: nothing is known of the record; the plan takes it for absent, which the commit verifies */
#define ASK 254                 /* cache: read it before the next plan (occ/retry.go: again), as each block */
mtype = { RENEW, AUTOASSIGN, RELIP, RELHANDLE, ASSIGN }  /* 5 to 1 */
#define BL(a) ((a)/APB)
#define EMPTY(d,i) (d.hold[(i)*APB]==0 && d.hold[(i)*APB+APB-1]==0)

/* A block with its addresses is one record: the address records are written in the block's commit, on its revision
 * (store/README.md "What ipset keeps").  The index of a handle follows from them (record/index.go), so it is not stored. */
typedef Db  { byte own[NB], since[NB], top[NB], hold[NA], seq[NA], until[NA], first[NA];
              byte qa, qs;              /* the answer under the request key: address, seq */
              byte rev[NR], last[NR] }; /* the revision of each record, 0 absent; the last one that it had */
/* A commit: contents and expected revisions; masks of what is guarded (expected) and what is written. */
typedef Txn { Db d; byte op, h, a, s, u; bit fresh; byte g, w, drop, dg[3]; bit on, orphan, gone, past };

Db st;  Db c[2];  Db sn;        /* the store, the caches, the state that a set-back restores */
Txn p[2];                       /* commits of unknown outcome that may still be made */
byte lf[2], lr[2];              /* occ/fence.go: the lost commit by one of its expectations, record+1 and revision */
byte now = 1, unk = UNK, crash = CRASH, ticks = TICKS, done = 0;
bit snapped, back, newer[2], repl[2]; byte dirty;        /* records written since the snapshot */
/* The oracle: what callers were told. */
byte hd[NA], hs[NA], hu[NA]; bit hassign[NA], hnew[NA], anew[NA];       /* address: holder, seq, lease end; by Assign; each since the snapshot */
byte ta[3], ts[3]; bit tnew[3];                          /* handle: the last address (+1) and seq that it was told */
byte mb[3];                                              /* handle: engines of which a call for it failed or has an unknown outcome */
byte cl[2]; /* engine that releases a handle: whose doubts that settles */
byte ka, ks; bit knew;                                   /* the answer of the request key */
hidden byte i, j, k, pick, ok; hidden Txn T, Z;          /* scratch, of one step; Z stays zero */

inline cpb(x,y,n) { x.own[n]=y.own[n]; x.since[n]=y.since[n]; x.top[n]=y.top[n];
  for (j : (n)*APB .. (n)*APB+APB-1) { x.hold[j]=y.hold[j]; x.seq[j]=y.seq[j]; x.until[j]=y.until[j]; x.first[j]=y.first[j] } }
inline cpd(x,y) { for (i : 0 .. NB-1) { cpb(x,y,i) } x.qa=y.qa; x.qs=y.qs; for (i : 0 .. NR-1) { x.rev[i]=y.rev[i]; x.last[i]=y.last[i] } }
inline cpt(x,y) { cpd(x.d,y.d); x.op=y.op; x.h=y.h; x.a=y.a; x.s=y.s; x.u=y.u; x.fresh=y.fresh; x.g=y.g; x.w=y.w;
  x.dg[1]=y.dg[1]; x.dg[2]=y.dg[2]; x.drop=y.drop; x.on=y.on; x.orphan=y.orphan; x.gone=y.gone; x.past=y.past }
inline unknown(e,i,v) { c[e].rev[i]=v; if :: i<NB -> cpb(c[e],Z.d,i) :: i==Q -> c[e].qa=0; c[e].qs=0 :: else fi }
inline restart(e) { for (k : 0 .. NR-1) { unknown(e,k,(k<NB -> ASK : NO)) } lf[e]=0; lr[e]=0; newer[e]=0; repl[e]=0; if :: p[e].on -> p[e].orphan=1 :: else fi }

/* The law that is checked after every change: what was acknowledged and not given back is so in the store. */
inline law() { for (i : 0 .. NA-1) { assert(hd[i]==0 || (st.hold[i]==hd[i] && st.seq[i]==hs[i])) } }

/* Reading: records of the lost past that an engine sees are its proof later (sqlstore/past.go, etcdstore/past.go). */
inline read(e,i) { c[e].rev[i]=st.rev[i]; if :: i<NB -> cpb(c[e],st,i) :: i==Q -> c[e].qa=st.qa; c[e].qs=st.qs :: else fi; answered(e,1<<i) }
inline answered(e,with) { if :: dirty & (PROOF -> 255 : (with)) -> newer[e]=1 :: else fi }
inline load(e) { for (i : 0 .. NR-1) { if :: c[e].rev[i]==ASK -> read(e,i) :: else fi } answered(e,0) }  /* txn/read.go: Warm, Fetch; occ/retry.go: again */

/* Time ends leases in every plan that meets the block (txn/due.go, block/time.go). */
inline advance(tn) { for (k : 0 .. NA-1) {
  if :: T.d.hold[k]!=0 && T.d.until[k]!=0 && T.d.until[k]+SKEW<=tn -> leave(k, T.d.until[k]) :: else fi } }
inline leave(x,tn) {                                      /* block.Leave; its index records go with it (record/index.go) */
  if :: T.d.first[x] -> T.dg[T.d.hold[x]] = 1<<BL(x) :: else fi;
  T.d.hold[x]=0; if :: EMPTY(T.d,BL(x)) -> T.d.since[BL(x)]=tn :: else fi; T.d.seq[x]=0; T.d.until[x]=0; T.d.first[x]=0 }

inline begin(e,o,hh,tn) { cpt(T,Z); cpd(T.d,c[e]); T.op=o; T.h=hh; T.past=newer[e];
  for (i : NB .. NR-1) { if :: T.d.rev[i]>=ASK -> T.d.rev[i]=0 :: else fi } advance(tn); pick=NONE }
inline guard(i) { T.g = T.g | (1<<i) }
inline write(i) { T.w = T.w | (1<<i) }

/* A new first holding writes the end of the one before, whose block would delete the record later (txn/first.go: EndedFirst). */
inline newfirst() { T.d.first[pick]=1; write(G(T.h)); T.w = T.w | T.dg[T.h]; T.g = T.g | T.dg[T.h] }

/* assign/assign.go, request.go, walk.go, meet.go, commit.go */
inline planassign(e,tn,lst) {
  if
  :: T.op==ASSIGN ->                                      /* request.go: existing */
     guard(G(T.h));
     for (k : 0 .. NA-1) { if :: lst & (1<<k) -> guard(BL(k));      /* the first holding, else the lowest address */
       if :: T.d.hold[k]==T.h && (pick==NONE || T.d.first[k]) -> pick=k :: else fi :: else fi }
  :: else ->                                              /* assign.go: replay; txn/memo.go: Recall */
     guard(Q);
     if :: T.d.rev[Q]!=0 -> k=T.d.qa; guard(BL(k)); if :: T.d.hold[k]==T.h && T.d.seq[k]==T.d.qs -> pick=k :: else fi :: else fi
  fi;
  if
  :: pick!=NONE ->                                        /* the answer is what is held; Assign makes it the first holding */
     if :: T.op==ASSIGN && !T.d.first[pick] -> write(BL(pick)); newfirst() :: else fi
  :: else ->
     for (k : 0 .. NA-1) { if :: T.d.own[BL(k)]==e -> guard(BL(k)); if :: pick==NONE && T.d.hold[k]==0 -> pick=k :: else fi :: else fi }
     for (k : 0 .. NA-1) {                                /* meet.go: standing, takeOver: another's, empty for a minute */
       if :: pick==NONE && T.d.own[BL(k)]!=e && EMPTY(T.d,BL(k)) && T.d.since[BL(k)]+1<=tn -> pick=k; T.d.own[BL(k)]=e :: else fi }
     for (k : 0 .. NA-1) { if :: pick==NONE && T.d.hold[k]==0 -> pick=k :: else fi }      /* pickForeign: borrowed */
     if
     :: pick==NONE -> T.g = T.g | ((1<<NB)-1)                /* full: the commit verifies what was passed over */
     :: else -> T.fresh=1; guard(BL(pick)); write(BL(pick)); T.d.top[BL(pick)]++;
        T.d.hold[pick]=T.h; T.d.seq[pick]=T.d.top[BL(pick)]; T.d.until[pick]=((TICKS>0 && T.h==2) -> tn+1 : 0);
        T.d.since[BL(pick)]=0;
        if :: T.op==ASSIGN -> newfirst() :: else -> write(Q); T.d.qa=pick; T.d.qs=T.d.seq[pick] fi
     fi
  fi;
  T.a=pick; if :: pick!=NONE -> T.s=T.d.seq[pick]; T.u=T.d.until[pick] :: else fi }

/* release/plan.go: ofHandle (of the places that the index named), byName (CanDrop: the guard names handle and sequence number) */
inline planrelease(lst,a,s) { T.s=s; for (k : 0 .. NA-1) {
  if :: lst & (1<<k) -> guard(BL(k)) :: else fi;
  if :: (lst & (1<<k)) && T.d.hold[k]==T.h && (T.op==RELHANDLE || T.d.seq[k]==s) -> leave(k,tn); T.drop = T.drop | (1<<k); write(BL(k)) :: else fi } }

/* renew.go: another end for the holding that the guard names, if it is not over */
inline planrenew(a,s,tn) { T.a=NONE; guard(BL(a));
  if :: T.d.hold[a]==T.h && T.d.seq[a]==s -> T.d.until[a]=tn+1; write(BL(a)); T.a=a; T.s=s; T.u=tn+1 :: else fi }

/* store.go Commit: every expectation, then every change.  A commit of an engine whose past is lost is refused. */
inline check() { ok = !(back && T.past); for (i : 0 .. NR-1) { if :: (T.g & (1<<i)) && st.rev[i]!=T.d.rev[i] -> ok=0 :: else fi } }
inline put(i) { st.last[i]++; st.rev[i]=st.last[i]; dirty = dirty | (snapped<<i) }
inline apply() {
  for (i : 1 .. 2) { if :: T.w & T.dg[i] -> st.rev[G(i)]=0 :: else fi }      /* index records: AnyRevision */
  for (i : 0 .. NR-1) { if :: T.w & (1<<i) -> put(i); if :: i<NB -> cpb(st,T.d,i) :: i==Q -> st.qa=T.d.qa; st.qs=T.d.qs :: else fi :: else fi } }
inline forget(e,v) { for (k : 0 .. NR-1) { if :: T.g & (1<<k) -> unknown(e,k,(k<NB -> ASK : v)) :: else fi } }  /* occ/txn.go: forget; v is ASK where again reads the records */
inline settled(e) {                                       /* occ/txn.go: settle; the cache has what was written */
  for (i : 1 .. 2) { if :: (T.w & T.dg[i]) && c[e].rev[G(i)]<ASK -> c[e].rev[G(i)]=0 :: else fi }
  for (i : 0 .. NR-1) { if :: T.w & (1<<i) -> read(e,i) :: !(T.w & (1<<i)) && (T.g & (1<<i)) && c[e].rev[i]>=ASK -> c[e].rev[i]=0 :: else fi } }

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
  printf("commit E %d op %d h %d a %d seq %d list %d clock %d guards %d : address %d seq %d fresh %d",e,T.op,T.h,a,s,lst,tn,T.g,T.a,T.s,T.fresh); SHOW();
  check(); EXPECT(); if :: !(ok && late && T.w) -> answered(e,0) :: else fi;
  if
  :: !ok -> res=2; forget(e,ASK)
  :: ok && late && T.w -> res=3; unk--; T.on=1; forget(e,NO); cpt(p[e],T);
     i=0; do :: !(T.g & T.w & (1<<i)) -> i++ :: else -> break od; lf[e]=i+1; lr[e]=T.d.rev[i]   /* fence.go: lose; txn.go: fence, rank 3 */
  :: ok && !(late && T.w) -> res=1; apply(); acked(e); settled(e); law();
     if :: T.op==RELHANDLE -> mb[T.h] = mb[T.h] & ~cl[e] :: else fi
  fi; printf(" result %d",res); SHOW(); printf("\n") }

/* A release that fails has freed nothing, although its caller no longer counts on the address. */
inline gaveup(e,o,hh) { for (i : NB .. NR-1) { if :: c[e].rev[i]==ASK -> c[e].rev[i]=NO :: else fi } /* occ/retry.go: forgotten */
  if :: o==RELHANDLE || o==RELIP -> doubt(e,o,hh) :: else fi }

proctype Engine(byte e) {
  byte n=(e==0 -> CALLS : CALLS1), op, h, tries, lst, a, s, tn, res; bit late;
idle: {
  atomic { op=0; h=0; tries=0; lst=0; a=0; s=0; tn=0; res=0; cl[e]=0; late=0;
  if
  :: n==0 -> goto end
  :: crash>0 -> crash--; repl[e]=1; goto idle
  :: n>0 -> n--; d_step { printf("begin E %d clock %d told %d %d , %d %d",e,CLOCK(e),ta[1],ts[1],ta[2],ts[2]); SHOW(); printf("\n") };
     if :: h=1 :: h=2 fi;
     if
     :: op=ASSIGN
     :: op=RELHANDLE; d_step { for (i : 0 .. NA-1) { if :: hd[i]==h -> hd[i]=0 :: else fi } k=0 }   /* the caller gives up what it has */
     :: ta[h]!=0 -> op=RELIP; a=ta[h]-1; s=ts[h]; d_step { lst=1<<a; if :: hd[a]==h && hs[a]==s -> hd[a]=0 :: else fi }
     :: h==AUTO -> op=AUTOASSIGN
     :: h==AUTO && TICKS>0 && ta[h]!=0 -> op=RENEW; a=ta[h]-1; s=ts[h]
     fi
  fi; printf("E%d call %e h %d a %d seq %d\n",e,op,h,a,s) }
settle:                                                   /* fence.go: settle, before anything is planned or read (txn/settled.go) */
  if
  :: lf[e]!=0 ->
     d_step { k=lf[e]-1; unknown(e,k,ASK); answered(e,1<<k); if :: st.rev[k]!=lr[e] -> lf[e]=0; lr[e]=0 :: else fi };
     if
     :: lf[e]!=0 -> atomic {
          if :: late=0 :: unk>0 -> late=1 :: unk>0 -> unk--; gaveup(e,op,h); goto idle fi;   /* done; unknown: made, not made */
          d_step { k=lf[e]-1; ok=(st.rev[k]==lr[e]); if :: ok -> put(k); lf[e]=(late->lf[e]:0); lr[e]=(late->lr[e]:0) :: else fi;
            if :: ok && !late -> answered(e,1<<k) :: ok && late -> unk-- :: else fi; res=(ok->(late->3:1):2); late=0; law(); printf("E%d fence: res %d\n",e,res) } };
        if :: res==3 -> atomic { gaveup(e,op,h); goto idle } :: else -> res=0; goto settle fi
     :: else
     fi
  :: else
  fi;
  d_step { p[e].gone=(p[e].on && !p[e].orphan); tn=CLOCK(e) };
plan: if :: tries>0 -> d_step { load(e) } :: else fi;
list: if
  :: op==ASSIGN || (op==RELHANDLE && tries==0) -> atomic { /* txn/held.go HeldBy, release.go IDs: the index as it is now */
     d_step { answered(e,0); lst=0; for (i : 0 .. NA-1) { if :: st.hold[i]==h -> lst = lst | (1<<i) :: else fi };
       if :: op==ASSIGN -> read(e,G(h)) :: else fi;       /* txn/held.go: See */
       if :: op==RELHANDLE -> cansettle(e,h); if :: lst==0 -> mb[h] = mb[h] & ~cl[e] :: else fi :: else fi; printf("E%d list h %d: %d\n",e,h,lst) };
     if :: op==RELHANDLE && lst==0 -> goto idle :: else fi }
  :: else fi;
  if :: c[e].rev[0]==ASK || c[e].rev[NB/2]==ASK || c[e].rev[NB-1]==ASK -> d_step { load(e) } :: else fi;
  atomic { late=0; if :: true :: unk>0 && !p[e].on -> late=1 fi;
    d_step { begin(e,op,h,tn);
      if :: op==ASSIGN || op==AUTOASSIGN -> planassign(e,tn,lst) :: op==RENEW -> planrenew(a,s,tn) :: else -> planrelease(lst,a,s) fi;
      commit(e,late); late=0 };
    if
    :: res==1 -> goto idle
    :: res==2 && tries<TRIES-1 -> tries++; res=0; d_step { tn=CLOCK(e) }; goto plan
    :: res==2 && tries==TRIES-1 -> gaveup(e,op,h); goto idle
    :: res==3 -> doubt(e,op,h); goto idle
    fi }
  } unless { atomic { repl[e]==1 -> gaveup(e,op,h); d_step { restart(e) }; goto idle } };     /* ErrReplaced: the process ends */
end: done++ }

/* What happens beside the engines: late commits, time, a sweep, the set-back; at the end the law at rest. */
proctype World() { byte e; byte setback=SETBACK;
  do
  :: atomic { done<2 && (p[0].on || p[1].on) -> if :: p[0].on -> e=0 :: p[1].on -> e=1 fi;
     d_step { cpt(T,p[e]); printf("late E %d op %d h %d list %d guards %d : address %d seq %d",e,T.op,T.h,T.drop,T.g,T.a,T.s); SHOW(); check(); EXPECT();
       if :: ok -> apply(); if :: !p[e].gone -> drops() :: else fi; law() :: else fi; printf(" result %d",ok); SHOW(); printf("\n"); cpt(p[e],Z) } ; e=0 }
  :: atomic { ticks>0 -> ticks--; d_step { now++; printf("tick %d\n",now); for (i : 0 .. NA-1) { if :: hd[i]!=0 && hu[i]!=0 && hu[i]<=now -> hd[i]=0 :: else fi } k=0 } }
  :: atomic { setback>0 && !snapped -> d_step { snapped=1; printf("snapshot\n"); cpd(sn,st); for (i : 0 .. NA-1) { hnew[i]=0; anew[i]=0 } tnew[1]=0; tnew[2]=0; knew=0 } }
  :: atomic { setback>0 && snapped -> setback=0; d_step { snapped=0; back=1; printf("set back\n"); dirty=0; cpd(st,sn); cpd(sn,Z.d);
       for (i : 0 .. 1) { repl[i]=newer[i]; p[i].gone=0 }
       for (i : 0 .. NA-1) { if :: hnew[i] -> hd[i]=0 :: anew[i] && !hnew[i] -> hassign[i]=0 :: else fi; anew[i]=0 }
       for (i : 1 .. 2) { if :: tnew[i] -> ta[i]=0 :: else fi } if :: knew -> ka=0; ks=0 :: else fi; law(); k=0 } }
  :: done==2 -> break
  od;
  atomic { true; if :: !back ->
    for (i : 0 .. NA-1) { k=st.hold[i]; assert(k==0 || hd[i]==k || mb[k]!=0 || (st.until[i]!=0 && st.until[i]<=now)) } /* nothing is left */
    for (i : 1 .. 2) { ok=0; for (j : 0 .. NA-1) { if :: st.hold[j]==i && st.first[j] -> ok++ :: else fi }
      assert(ok<2 && (st.rev[G(i)]!=0)==ok) }             /* the guard goes with its holding */
  :: else fi } }

init { d_step { for (i : 0 .. NB-1) { st.rev[i]=1; st.last[i]=1; st.own[i]=i%2; st.since[i]=1 } restart(0); restart(1) }; atomic { run World(); run Engine(0); run Engine(1) } }
