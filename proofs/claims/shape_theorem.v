(* Orders are decidable by shape, for any number of leaves: checked by Coq 8.16, without axioms.
   SPDX-License-Identifier: Apache-2.0

   Two trees over the same distinct leaves are equal up to swapping operands if and only if they give the same sum
   whatever the leaves are, and it is enough to try M on i, -M on j, 1 on k and 0 elsewhere, for all i, j, k. What is
   assumed of addition is that it commutes, and a few sums of these four values: the hypotheses of section Sums. That
   every float format has them is what addition_commutes and orders_decidable_by_shape ask the solver, format by format
   (addition.cpp). *)

Require Import List Arith Permutation.
Import ListNotations.

Inductive tree : Set := Leaf (rank : nat) | Node (left right : tree).

Fixpoint leaves (t : tree) : list nat :=
  match t with Leaf r => [r] | Node a b => leaves a ++ leaves b end.

(* Equal up to swapping operands. *)
Inductive same : tree -> tree -> Prop :=
| same_leaf : forall r, same (Leaf r) (Leaf r)
| same_node : forall a b c d, same a c -> same b d -> same (Node a b) (Node c d)
| same_swap : forall a b c d, same a c -> same b d -> same (Node a b) (Node d c).

Definition holds (t : tree) (r : nat) := In r (leaves t).
(* No leaf twice. *)
Definition whole (t : tree) := NoDup (leaves t).

Lemma parts : forall a b, whole (Node a b) -> whole a /\ whole b /\ forall r, holds a r -> ~ holds b r.
Proof.
  unfold whole, holds. intros a b. simpl. induction (leaves a) as [| r l IH]; simpl; intros D.
  - repeat split; auto. constructor.
  - inversion D as [| ? ? N D']; subst. destruct (IH D') as (Da & Db & apart). rewrite in_app_iff in N.
    repeat split; auto.
    + constructor; tauto.
    + intros s [-> | S]; [tauto | auto].
Qed.

Lemma some_leaf : forall t, exists r, holds t r.
Proof.
  unfold holds. induction t as [r | a [r R] b _]; simpl; [exists r; auto | exists r; apply in_or_app; auto].
Qed.

Lemma of_node : forall a b r, holds (Node a b) r <-> holds a r \/ holds b r.
Proof. unfold holds. simpl. intros. apply in_app_iff. Qed.

Lemma decide_holds : forall t r, holds t r \/ ~ holds t r.
Proof. intros t r. unfold holds. destruct (in_dec Nat.eq_dec r (leaves t)); auto. Qed.

Section Sums.

Variable V : Type.
Variable add : V -> V -> V.
Hypothesis commutes : forall x y, add x y = add y x.

Fixpoint sum (x : nat -> V) (t : tree) : V :=
  match t with Leaf r => x r | Node a b => add (sum x a) (sum x b) end.

(* If: swapping changes nothing. *)
Theorem same_trees_same_sums : forall t u, same t u -> forall x, sum x t = sum x u.
Proof.
  induction 1; intro x; simpl; [reflexivity | | ]; rewrite IHsame1, IHsame2; auto.
Qed.

(* Only if. *)
Variables zero one plus minus : V.
Hypothesis zero_adds_nothing : add zero zero = zero /\ add one zero = one /\ add plus zero = plus /\ add minus zero = minus.
Hypothesis plus_swallows : add plus one = plus.
Hypothesis minus_swallows : add minus one = minus.
Hypothesis they_cancel : add plus minus = zero.
Hypothesis one_is_not_zero : one <> zero.

Ltac table := destruct zero_adds_nothing as (Z0 & Z1 & Zp & Zm);
  first [ assumption | rewrite commutes; assumption ].

Section Probe.

Variables i j k : nat.
Hypotheses (ij : i <> j) (ik : i <> k) (jk : j <> k).

Definition probe (r : nat) : V :=
  if r =? i then plus else if r =? j then minus else if r =? k then one else zero.

Ltac at_leaf := unfold holds, probe in *; simpl in *;
  repeat match goal with |- context [?x =? ?y] => destruct (Nat.eqb_spec x y); subst end; try reflexivity; exfalso;
  intuition congruence.

(* A subtree's sum, by which of i, j and k it holds. *)
Lemma none : forall t, ~ holds t i -> ~ holds t j -> ~ holds t k -> sum probe t = zero.
Proof.
  induction t as [r | a IHa b IHb]; intros; [at_leaf |]. rewrite of_node in *. simpl.
  rewrite IHa, IHb by tauto. table.
Qed.

Lemma only_k : forall t, whole t -> ~ holds t i -> ~ holds t j -> holds t k -> sum probe t = one.
Proof.
  induction t as [r | a IHa b IHb]; intros W I J K; [at_leaf |]. rewrite of_node in *. simpl.
  destruct (parts _ _ W) as (Wa & Wb & apart). specialize (apart k).
  destruct K as [K | K].
  - rewrite IHa by tauto. rewrite none by tauto. table.
  - rewrite IHb by tauto. rewrite none by tauto. table.
Qed.

Lemma i_without_j : forall t, whole t -> holds t i -> ~ holds t j -> sum probe t = plus.
Proof.
  induction t as [r | a IHa b IHb]; intros W I J; [at_leaf |]. rewrite of_node in *. simpl.
  destruct (parts _ _ W) as (Wa & Wb & apart). specialize (apart i).
  destruct I as [I | I].
  - rewrite IHa by tauto. destruct (decide_holds b k); [rewrite only_k by tauto | rewrite none by tauto]; table.
  - rewrite IHb by tauto. destruct (decide_holds a k); [rewrite only_k by tauto | rewrite none by tauto]; table.
Qed.

Lemma j_without_i : forall t, whole t -> holds t j -> ~ holds t i -> sum probe t = minus.
Proof.
  induction t as [r | a IHa b IHb]; intros W J I; [at_leaf |]. rewrite of_node in *. simpl.
  destruct (parts _ _ W) as (Wa & Wb & apart). specialize (apart j).
  destruct J as [J | J].
  - rewrite IHa by tauto. destruct (decide_holds b k); [rewrite only_k by tauto | rewrite none by tauto]; table.
  - rewrite IHb by tauto. destruct (decide_holds a k); [rewrite only_k by tauto | rewrite none by tauto]; table.
Qed.

Lemma i_meets_j : forall a b, whole (Node a b) ->
  holds a i /\ holds b j \/ holds a j /\ holds b i -> sum probe (Node a b) = zero.
Proof.
  intros a b W H. simpl. destruct (parts _ _ W) as (Wa & Wb & apart).
  pose proof (apart i). pose proof (apart j). destruct H as [[A B] | [A B]].
  - rewrite i_without_j, j_without_i by tauto. table.
  - rewrite j_without_i, i_without_j by tauto. table.
Qed.

Lemma i_and_j : forall t, whole t -> holds t i -> holds t j -> ~ holds t k -> sum probe t = zero.
Proof.
  induction t as [r | a IHa b IHb]; intros W I J K; [at_leaf |].
  destruct (parts _ _ W) as (Wa & Wb & apart). pose proof (apart i). pose proof (apart j). rewrite of_node in *.
  destruct I as [I | I]; destruct J as [J | J].
  - simpl. rewrite IHa by tauto. rewrite none by tauto. table.
  - apply i_meets_j; tauto.
  - apply i_meets_j; tauto.
  - simpl. rewrite IHb by tauto. rewrite none by tauto. table.
Qed.

(* i meets j below k: 1. *)
Lemma k_comes_last : forall a b, whole (Node a b) -> holds a i -> holds a j -> holds b k ->
  sum probe (Node a b) = one.
Proof.
  intros a b W I J K. destruct (parts _ _ W) as (Wa & Wb & apart).
  pose proof (apart i). pose proof (apart j). pose proof (apart k). simpl.
  rewrite i_and_j by tauto. rewrite only_k by tauto. table.
Qed.

Lemma all_three : forall t, whole t -> holds t i -> holds t j -> holds t k ->
  sum probe t = zero \/ sum probe t = one.
Proof.
  induction t as [r | a IHa b IHb]; intros W I J K; [exfalso; unfold holds in *; simpl in *; intuition congruence |].
  destruct (parts _ _ W) as (Wa & Wb & apart). pose proof (apart i). pose proof (apart j). pose proof (apart k).
  rewrite of_node in *. destruct I as [I | I]; destruct J as [J | J].
  - destruct K as [K | K].
    + simpl. rewrite (none b) by tauto.
      destruct IHa as [E | E]; try tauto; rewrite E; [left | right]; table.
    + right. apply k_comes_last; tauto.
  - left. apply i_meets_j; tauto.
  - left. apply i_meets_j; tauto.
  - destruct K as [K | K].
    + right. simpl. rewrite only_k by tauto. rewrite i_and_j by tauto. table.
    + simpl. rewrite (none a) by tauto.
      destruct IHb as [E | E]; try tauto; rewrite E; [left | right]; table.
Qed.

Lemma all_on_the_left : forall a b, whole (Node a b) -> holds a i -> holds a j -> holds a k ->
  sum probe (Node a b) = sum probe a.
Proof.
  intros a b W I J K. destruct (parts _ _ W) as (Wa & Wb & apart).
  pose proof (apart i). pose proof (apart j). pose proof (apart k). simpl. rewrite (none b) by tauto.
  destruct (all_three a) as [E | E]; try tauto; rewrite E; table.
Qed.

End Probe.

Lemma swapped : forall x a b, sum x (Node a b) = sum x (Node b a).
Proof. intros. simpl. auto. Qed.

Lemma whole_swapped : forall a b, whole (Node a b) -> whole (Node b a).
Proof.
  unfold whole. simpl. intros a b D. apply (Permutation.Permutation_NoDup (l := leaves a ++ leaves b)); auto.
  apply Permutation.Permutation_app_comm.
Qed.

Lemma all_on_the_right : forall i j k a b, i <> j -> i <> k -> j <> k -> whole (Node a b) ->
  holds b i -> holds b j -> holds b k -> sum (probe i j k) (Node a b) = sum (probe i j k) b.
Proof.
  intros. rewrite swapped. apply all_on_the_left; auto. now apply whole_swapped.
Qed.

Definition agree (t u : tree) := forall i j k, i <> j -> i <> k -> j <> k ->
  holds t i -> holds t j -> holds t k -> sum (probe i j k) t = sum (probe i j k) u.

(* Where two whole trees of the same leaves agree on all probes, parts that share a leaf have the same leaves. *)
Lemma within : forall a b c d x, whole (Node a b) -> whole (Node c d) ->
  (forall r, holds (Node a b) r <-> holds (Node c d) r) -> agree (Node a b) (Node c d) ->
  holds a x -> holds c x -> forall y, holds a y -> holds c y.
Proof.
  intros a b c d x W U E A X X' y Y.
  destruct (decide_holds c y) as [| N]; [assumption | exfalso].
  destruct (some_leaf b) as [z Z].
  destruct (parts _ _ W) as (_ & _ & apart). destruct (parts _ _ U) as (_ & _ & apart').
  assert (holds d y) as Y'. { specialize (E y). rewrite !of_node in E. tauto. }
  assert (x <> y) by (intro; subst; auto).
  assert (x <> z) by (intro; subst z; exact (apart x X Z)).
  assert (y <> z) by (intro; subst z; exact (apart y Y Z)).
  assert (sum (probe x y z) (Node a b) = one) as One by (apply k_comes_last; auto).
  assert (sum (probe x y z) (Node c d) = zero) as Zero by (apply i_meets_j; auto).
  rewrite A in One by (rewrite ?of_node; auto). congruence.
Qed.

Lemma agree_sym : forall t u, (forall r, holds t r <-> holds u r) -> agree t u -> agree u t.
Proof. unfold agree. intros t u E A i j k ? ? ? I J K. symmetry. apply A; auto; now apply E. Qed.

Lemma agreeing_trees : forall t u, whole t -> whole u -> (forall r, holds t r <-> holds u r) -> agree t u -> same t u.
Proof.
  induction t as [r | a IHa b IHb]; intros u W U E A.
  - destruct u as [s | c d].
    + assert (holds (Leaf s) r) as R by (apply E; unfold holds; simpl; auto).
      destruct R as [-> | []]. constructor.
    + exfalso. destruct (some_leaf c) as [x X]. destruct (some_leaf d) as [y Y].
      destruct (parts _ _ U) as (_ & _ & apart).
      assert (holds (Leaf r) x) as Ex by (apply E; rewrite of_node; auto).
      assert (holds (Leaf r) y) as Ey by (apply E; rewrite of_node; auto).
      destruct Ex as [-> | []]. destruct Ey as [-> | []]. exact (apart _ X Y).
  - assert (forall c d, whole (Node c d) -> (forall r, holds (Node a b) r <-> holds (Node c d) r) ->
      agree (Node a b) (Node c d) -> (exists x, holds a x /\ holds c x) -> same a c /\ same b d) as by_parts.
    { intros c d U' E' A' [x [X X']].
      destruct (parts _ _ W) as (Wa & Wb & apart). destruct (parts _ _ U') as (Wc & Wd & apart').
      assert (forall r, holds a r <-> holds c r) as Ea.
      { intro r. split.
        - exact (within a b c d x W U' E' A' X X' r).
        - exact (within c d a b x U' W (fun s => iff_sym (E' s)) (agree_sym _ _ E' A') X' X r). }
      assert (forall r, holds b r <-> holds d r) as Eb.
      { intro r. specialize (E' r). rewrite !of_node in E'. specialize (Ea r). specialize (apart r).
        specialize (apart' r). tauto. }
      split.
      - apply IHa; auto. intros i j k ? ? ? I J K.
        rewrite <- (all_on_the_left i j k) with (b := b) by auto.
        rewrite <- (all_on_the_left i j k) with (a := c) (b := d) by (auto; now apply Ea).
        apply A'; auto; rewrite of_node; auto.
      - apply IHb; auto. intros i j k ? ? ? I J K.
        rewrite <- (all_on_the_right i j k a b) by auto.
        rewrite <- (all_on_the_right i j k c d) by (auto; now apply Eb).
        apply A'; auto; rewrite of_node; auto. }
    destruct u as [s | c d].
    + exfalso. destruct (some_leaf a) as [x X]. destruct (some_leaf b) as [y Y].
      destruct (parts _ _ W) as (_ & _ & apart).
      assert (holds (Leaf s) x) as Ex by (apply E; rewrite of_node; auto).
      assert (holds (Leaf s) y) as Ey by (apply E; rewrite of_node; auto).
      destruct Ex as [-> | []]. destruct Ey as [-> | []]. exact (apart _ X Y).
    + destruct (some_leaf a) as [x X].
      assert (holds (Node c d) x) as XU by (apply E; rewrite of_node; auto).
      rewrite of_node in XU. destruct XU as [XU | XU].
      * destruct (by_parts c d U E A) as [S T]; eauto. constructor; auto.
      * destruct (by_parts d c) as [S T]; eauto.
        -- now apply whole_swapped.
        -- intro r. rewrite E, !of_node. tauto.
        -- intros i j k ? ? ? I J K. rewrite (swapped _ d c). auto.
        -- apply same_swap; auto.
Qed.

(* Two whole trees over the same leaves. *)
Theorem orders_decidable_by_shape : forall t u, whole t -> whole u -> (forall r, holds t r <-> holds u r) ->
  (same t u <-> forall x, sum x t = sum x u).
Proof.
  intros t u W U E. split.
  - apply same_trees_same_sums.
  - intro A. apply agreeing_trees; auto. unfold agree. auto.
Qed.

End Sums.

Print Assumptions orders_decidable_by_shape.
