/* Claims and removals of the two blocks of a page, with the marks of their sequence numbers, and two callers in one commit. README.md says what holds.
 * Parameters (-D): CALLS commits of each engine, UNK of unknown outcome, BATCH 1 lets two callers share a commit. A block has one address. The fence of
 * a lost commit, which model.pml has in full, is one step here. Records: blocks 0 and 1, their page 2 (word, mark), the floor 3. */
#define NO 255
mtype = { REMOVE, RELEASE, ASSIGN }
#define HAS(d,i) (d.x & (1<<(i)))
#define MAX(p,q) (p>q -> p : q)
typedef Db { byte rev[4]; byte v[4]; byte m[4]; byte x };   /* revision, holder or word, highest sequence number or mark; which records exist */
typedef Txn { Db d; byte g, w; bit on };                    /* contents and expected revisions; what is guarded, what is written */
typedef Call { byte op, h, a, s; bit left };
Db st, c[2]; Txn p[2]; Call k[2];               /* the store, the caches, commits that may still be made, the calls of a commit that is planned */
byte last, unk = UNK;                           /* the revision of the store */
byte hd[2], hs[2], hi[2], ta[3], ts[3];         /* address: who was told to hold it, as which number, the highest one ever; handle: the last answer */
hidden byte i, n, ok; hidden Txn T;
inline cpr(x1,y1,i1) { x1.rev[i1]=y1.rev[i1]; x1.v[i1]=y1.v[i1]; x1.m[i1]=y1.m[i1]; x1.x = (x1.x & ~(1<<i1)) | (y1.x & (1<<i1)) }
inline cpd(x1,y1) { for (i : 0 .. 3) { cpr(x1,y1,i) } }
inline clear() { for (i : 0 .. 1) { k[i].op=0; k[i].h=0; k[i].a=0; k[i].s=0; k[i].left=0 } }
inline write(f,set) { T.g = T.g | f; T.w = T.w | f; T.d.x = (T.d.x & ~(f)) | set }

/* A plan changes what the plan before it has left.  txn/txn.go: SetWord, pass, Occupy, Vacate; block.go */
inline plan(q,b) { b=k[q].a; T.g = T.g | (1<<b);
  if
  :: k[q].op==ASSIGN && !HAS(T.d,b) ->                      /* a claim: the block begins above the mark of its page, a page with that of its floor */
     if :: !HAS(T.d,2) -> T.g = T.g | 8; T.d.v[2]=0; T.d.m[2]=T.d.m[3] :: else fi;
     write(1<<b,1<<b); write(4,4); T.d.v[2] = T.d.v[2] | (1<<b); T.d.v[b]=k[q].h; T.d.m[b]=T.d.m[2]+1; k[q].s=T.d.m[b]
  :: k[q].op==ASSIGN && HAS(T.d,b) && T.d.v[b]==0 -> write(1<<b,1<<b); T.d.v[b]=k[q].h; T.d.m[b]++; k[q].s=T.d.m[b]
  :: k[q].op==RELEASE && HAS(T.d,b) && T.d.v[b]==k[q].h && T.d.m[b]==k[q].s -> write(1<<b,1<<b); T.d.v[b]=0
  :: k[q].op==REMOVE && HAS(T.d,b) && T.d.v[b]==0 ->        /* the mark rises over the block's numbers, and passes to the floor with the last block */
     write(1<<b,0); T.d.m[2]=MAX(T.d.m[2],T.d.m[b]); T.d.m[b]=0; T.d.v[2] = T.d.v[2] & ~(1<<b);
     if :: T.d.v[2]!=0 -> write(4,4) :: else -> write(4,0); write(8,8); T.d.m[3]=MAX(T.d.m[2],T.d.m[3]); T.d.m[2]=0 fi
  :: else -> if :: k[q].op==ASSIGN -> k[q].op=0 :: else fi  /* held */
  fi }
inline check() { ok=1; for (i : 0 .. 3) { if :: (T.g & (1<<i)) && st.rev[i]!=T.d.rev[i] -> ok=0 :: else fi } }
inline apply() { if :: T.w -> last++ :: else fi;
  for (i : 0 .. 1) { if :: (T.w & (1<<i)) && T.d.v[i]!=0 && (T.d.v[i]!=st.v[i] || T.d.m[i]!=st.m[i]) -> assert(T.d.m[i]>hi[i]); hi[i]=T.d.m[i] :: else fi }  /* no number repeats */
  for (i : 0 .. 3) { if :: T.w & (1<<i) -> cpr(st,T.d,i); st.rev[i]=(HAS(st,i) -> last : 0) :: else fi }
  for (i : 0 .. 1) { assert((HAS(st,i)!=0) == ((st.v[2]>>i) & 1)) } assert((HAS(st,2)!=0) == (st.v[2]!=0)) }    /* the page names the blocks that exist */
inline law() { for (i : 0 .. 1) { assert(hd[i]==0 || (HAS(st,i) && st.v[i]==hd[i] && st.m[i]==hs[i])) } }         /* what was acknowledged is there */
inline acked(q,b) { b=k[q].a;
  if :: k[q].op==ASSIGN && !k[q].left -> assert(hd[b]==0); hd[b]=k[q].h; hs[b]=k[q].s; ta[k[q].h]=b+1; ts[k[q].h]=k[q].s :: else fi }
inline choose(q) { if :: k[q].h=1 :: k[q].h=2 fi; if :: k[q].a=0 :: k[q].a=1 fi;
  if :: k[q].op=ASSIGN :: k[q].op=REMOVE
     :: ta[k[q].h]!=0 -> k[q].op=RELEASE; k[q].a=ta[k[q].h]-1; k[q].s=ts[k[q].h]; if :: hd[k[q].a]==k[q].h && hs[k[q].a]==k[q].s -> hd[k[q].a]=0 :: else fi
  fi; if :: true :: BATCH -> k[q].left=1 fi }               /* a caller that leaves is not answered */

proctype Engine(byte e) { byte calls=CALLS; bit late, two;
  do
  :: calls==0 -> break
  :: p[e].on -> d_step { cpd(T.d,p[e].d); T.g=p[e].g; T.w=p[e].w; check(); printf("late commit of E%d: made %d\n",e,ok); if :: ok -> apply(); law() :: else fi; p[e].on=0 }
  :: calls>0 -> d_step { calls--; for (i : 0 .. 3) { if :: c[e].rev[i]==NO -> cpr(c[e],st,i) :: else fi } p[e].on=0 } /* settled, and read */
     atomic { if :: true :: BATCH -> two=1 fi; if :: true :: unk>0 -> late=1 fi;
       choose(0); if :: two -> choose(1) :: else fi;
       d_step { T.g=0; T.w=0; cpd(T.d,c[e]); plan(0,n); if :: two -> plan(1,n) :: else fi; check();
         printf("E%d %d: op %d h %d a %d s %d, op %d h %d a %d s %d: ok %d late %d writes %d\n",e,calls,k[0].op,k[0].h,k[0].a,k[0].s,k[1].op,k[1].h,k[1].a,k[1].s,ok,late,T.w);
         if
         :: ok && late && T.w -> unk--; cpd(p[e].d,T.d); p[e].g=T.g; p[e].w=T.w; p[e].on=1
         :: ok && !(late && T.w) -> apply(); acked(0,n); if :: two -> acked(1,n) :: else fi; law()
         :: else
         fi;
         for (i : 0 .. 3) { if :: (T.g & (1<<i)) -> if :: ok && !late -> cpr(c[e],st,i) :: else -> c[e].rev[i]=NO; c[e].v[i]=0; c[e].m[i]=0; c[e].x = c[e].x & ~(1<<i) fi :: else fi }
         clear(); n=0; late=0; two=0 } }
  od }
init { d_step { for (i : 0 .. 3) { c[0].rev[i]=NO; c[1].rev[i]=NO } i=0 }; atomic { run Engine(0); run Engine(1) } }
