package lighterage.call;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicInteger;
import lighterage.CallTooLarge;
import lighterage.DoesNotTravel;
import lighterage.Each;
import lighterage.LighterageException;
import lighterage.NoNode;
import lighterage.NodeRefused;
import lighterage.NodeUnreachable;
import lighterage.RemoteException;
import lighterage.ReplyBroken;

/** Many calls at several places, which are words here. */
public final class FarmTest {
    private static final Farm.Known<String> KNOWN = new Farm.Known<String>() {
        @Override
        public boolean isHere(String place) {
            return place.equals("here");
        }

        @Override
        public boolean isAway(String place) {
            return false;
        }
    };

    private final List<Integer> items = new ArrayList<>();
    private final List<Integer> doubled = new ArrayList<>();

    /** 500 items. */
    public void setUp() {
        for (int item = 0; item < 500; item++) {
            items.add(item);
            doubled.add(2 * item);
        }
    }

    private List<Integer> farm(List<String> places, Each<String, Integer, Integer> each) throws Exception {
        Farm<String, Integer, Integer> farm = new Farm<>(places, KNOWN, items.iterator(), each);
        farm.stuckSeconds = 0.3;
        return farm.run();
    }

    /** Every item once, at every place, and the results in their order. */
    public void testResultsStandInTheOrderOfTheItems() throws Exception {
        ConcurrentLinkedQueue<Integer> done = new ConcurrentLinkedQueue<>();
        CountDownLatch places = new CountDownLatch(3);
        List<Integer> results = farm(Arrays.asList("here", "there", "elsewhere"), (place, item) -> {
            if (done.size() < 3) {
                places.countDown();
                places.await();
            }
            done.add(item);
            return 2 * item;
        });
        assert results.equals(doubled) : results;
        assert done.size() == items.size() : done.size();
        items.clear();
        assert farm(Collections.singletonList("here"), (place, item) -> item).isEmpty();
    }

    /** What a node that is gone had taken is done elsewhere, even if the others had nothing left to do by then. */
    public void testWhatOnePlaceDoesNotDoAnotherOneDoes() throws Exception {
        List<String> gone = Arrays.asList("here", "gone", "gone");
        for (List<String> places : Arrays.asList(Arrays.asList("gone", "here"), gone)) {
            List<Integer> results = farm(places, (place, item) -> {
                if (place.equals("gone")) {
                    Thread.sleep(20);
                    throw new NodeUnreachable("it is gone");
                }
                return 2 * item;
            });
            assert results.equals(doubled) : results;
        }
    }

    /** A node that is full, silent or broken for a moment is not given up: there is no other one here. */
    public void testAHiccupLosesNothing() throws Exception {
        AtomicInteger calls = new AtomicInteger();
        List<LighterageException> hiccups = Arrays.asList(
                new NodeUnreachable("it is gone"),
                new ReplyBroken("it broke off"),
                new NodeRefused(503, "L3007", "it is full", ""));
        List<Integer> results = farm(Arrays.asList("there", "there"), (place, item) -> {
            int call = calls.getAndIncrement();
            if (call % 100 == 7) {
                throw hiccups.get(call / 100 % hiccups.size());
            }
            return 2 * item;
        });
        assert results.equals(doubled) : results;
    }

    /** A node that will not do better next time is given up. */
    public void testANodeThatRefusesIsGivenUp() throws Exception {
        AtomicInteger calls = new AtomicInteger();
        try {
            farm(Arrays.asList("there", "there"), (place, item) -> {
                calls.incrementAndGet();
                throw new NodeRefused(401, "L4005", "the token is not right", "");
            });
            assert false;
        } catch (NodeRefused refused) {
            assert calls.get() == 2 : calls;
        }
    }

    /** An item that does not travel runs here, and the node goes on; where here is no place, it ends the map. */
    public void testWhatDoesNotTravelRunsHere() throws Exception {
        for (LighterageException stays : Arrays.asList(new CallTooLarge("large"), new DoesNotTravel("stays"))) {
            ConcurrentLinkedQueue<Integer> there = new ConcurrentLinkedQueue<>();
            CountDownLatch begun = new CountDownLatch(1);
            Each<String, Integer, Integer> each = (place, item) -> {
                if (place.equals("there")) {
                    begun.countDown();
                    there.add(item);
                    if (item % 2 == 1) {
                        throw stays;
                    }
                } else {
                    begun.await();
                    Thread.sleep(1);
                }
                return 2 * item;
            };
            assert farm(Arrays.asList("here", "there"), each).equals(doubled);
            assert there.size() > 2 : there;
            try {
                farm(Arrays.asList("there", "there"), each);
                assert false;
            } catch (ExecutionException thrown) {
                assert thrown.getCause() == stays : thrown;
            }
        }
    }

    /** An item that breaks every connection runs here in the end; where here is no place, it ends the map. */
    public void testAnItemThatBreaksEveryConnectionIsNotTriedForEver() throws Exception {
        AtomicInteger tries = new AtomicInteger();
        CountDownLatch begun = new CountDownLatch(1);
        CountDownLatch enough = new CountDownLatch(6);
        ReplyBroken broken = new ReplyBroken("it broke off");
        Each<String, Integer, Integer> each = (place, item) -> {
            if (place.equals("here")) {
                begun.countDown();
                enough.await();
                return 2 * item;
            }
            begun.await();
            if (item == 7) {
                tries.incrementAndGet();
                enough.countDown();
                throw broken;
            }
            return 2 * item;
        };
        List<String> places = Arrays.asList("here", "there");
        assert new Farm<String, Integer, Integer>(places, KNOWN, items.iterator(), each).run().equals(doubled);
        assert tries.get() == 6 : tries;
        try {
            places = Arrays.asList("there", "there");
            new Farm<String, Integer, Integer>(places, KNOWN, items.iterator(), each).run();
            assert false;
        } catch (ExecutionException thrown) {
            assert thrown.getCause() == broken && tries.get() == 12 : tries;
        }
    }

    /** An interrupt ends the workers, also those in other threads. */
    public void testAnInterruptEndsTheWorkers() throws Exception {
        AtomicInteger begun = new AtomicInteger();
        Thread caller = Thread.currentThread();
        Iterator<Integer> endless = new Iterator<Integer>() {
            @Override
            public boolean hasNext() {
                return true;
            }

            @Override
            public Integer next() {
                return 0;
            }
        };
        List<String> places = Arrays.asList("here", "there", "there");
        try {
            new Farm<String, Integer, Integer>(places, KNOWN, endless, (place, item) -> {
                if (begun.incrementAndGet() == 100) {
                    caller.interrupt();
                }
                return item;
            }).run();
            assert false;
        } catch (InterruptedException ended) {
            assert begun.get() >= 100 : begun;
        }
        // Each of the others ends the call that it has.
        int soon = begun.get();
        Thread.sleep(200);
        assert begun.get() <= soon + 2 : begun.get() - soon;
    }

    /** Where no place is left, the last one's words are what is thrown. */
    public void testWithoutAPlaceItEnds() throws Exception {
        try {
            farm(Arrays.asList("gone", "gone"), (place, item) -> {
                throw new NodeUnreachable("it is gone");
            });
            assert false;
        } catch (NodeUnreachable gone) {
            assert gone.getMessage().equals("it is gone");
        }
        try {
            farm(Collections.emptyList(), (place, item) -> item);
            assert false;
        } catch (NoNode none) {
            assert none.code().equals("L8001");
        }
    }

    /** What a call throws ends the rest, also where it was thrown on a node; so does what the items throw. */
    public void testWhatACallThrowsEndsTheRest() throws Exception {
        for (Exception own : Arrays.asList(new IllegalStateException("own"), new RemoteException("own", null))) {
            ConcurrentLinkedQueue<Integer> begun = new ConcurrentLinkedQueue<>();
            try {
                farm(Arrays.asList("here", "there"), (place, item) -> {
                    begun.add(item);
                    if (item == 7) {
                        throw own;
                    }
                    Thread.sleep(1);
                    return item;
                });
                assert false;
            } catch (ExecutionException thrown) {
                assert thrown.getCause() == own : thrown;
            }
            assert begun.size() < items.size() : begun.size();
        }
        Iterator<Integer> broken = new Iterator<Integer>() {
            @Override
            public boolean hasNext() {
                throw new IllegalStateException("items");
            }

            @Override
            public Integer next() {
                return 0;
            }
        };
        try {
            List<String> places = Arrays.asList("here", "there");
            new Farm<String, Integer, Integer>(places, KNOWN, broken, (place, item) -> item).run();
            assert false;
        } catch (ExecutionException thrown) {
            assert thrown.getCause().getMessage().equals("items");
        }
    }
}
