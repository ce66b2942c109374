package lighterage.call;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import lighterage.Each;
import lighterage.NoNode;
import lighterage.NodeUnreachable;
import lighterage.RemoteException;

/** Many calls at several places, which are words here. */
public final class FarmTest {
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
        return new Farm<>(places, items.iterator(), each).run();
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
            new Farm<String, Integer, Integer>(Arrays.asList("here", "there"), broken, (place, item) -> item).run();
            assert false;
        } catch (ExecutionException thrown) {
            assert thrown.getCause().getMessage().equals("items");
        }
    }
}
