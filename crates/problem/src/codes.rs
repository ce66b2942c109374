//! Every code a user can see. A number is never reused; texts may improve.
//!
//! L1xxx manifest and command line · L2xxx images and deployment · L3xxx limits · L4xxx HTTP and access ·
//! L5xxx state and disk · L6xxx units · L7xxx events · L8xxx offloading, said by SDKs · L9xxx the node itself.

use std::fmt;

macro_rules! codes {
    ($($number:literal $name:ident $status:literal $title:literal $hint:literal;)*) => {
        /// A stable error code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum Code { $(#[doc = $title] $name = $number,)* }

        impl Code {
            pub const ALL: &[Code] = &[$(Code::$name,)*];

            /// The HTTP status a problem with this code travels under.
            pub const fn status(self) -> u16 { match self { $(Code::$name => $status,)* } }

            /// What all problems with this code have in common.
            pub const fn title(self) -> &'static str { match self { $(Code::$name => $title,)* } }

            /// What usually helps.
            pub const fn hint(self) -> &'static str { match self { $(Code::$name => $hint,)* } }
        }
    };
}

codes! {
    1001 ManifestMissing 400 "no manifest" "run `lighter new` for a start, or name the folder that holds lighter.toml";
    1002 ManifestSyntax 400 "the manifest is not valid TOML" "look at the place it names: a text stands in quotes, and a key or table stands once";
    1003 ManifestUnknownKey 400 "unknown key in the manifest" "`lighter schema` prints every key";
    1004 ManifestValue 400 "a value in the manifest is out of range or of the wrong type" "`lighter schema` prints every key with its bounds";
    1005 ManifestConflict 400 "two parts of the manifest contradict each other" "change one of the two";
    1101 Usage 400 "the command line is not right" "add --help for the options";
    1102 NodeUnreachable 503 "no node answers" "start one with `lighter up`, or name one with --node or LIGHTER_NODE";
    1103 ToolMissing 400 "a tool that is needed is not installed" "install it, and see that it is found by PATH";
    1104 BuildFailed 400 "the function did not build" "what the build said stands above";
    1105 FolderNotEmpty 400 "the folder is not empty" "choose another name, or an empty folder";
    1106 ImageMissing 400 "the image named in the manifest is not there" "`lighter build` makes it, `lighter deploy --build` does both";
    1107 FileUnusable 400 "a file cannot be read or written" "see that it is there, and that you may read and write it";
    2001 FunctionUnknown 404 "no function of this name" "`lighter ls` lists the functions";
    2002 VersionUnknown 404 "no such version of this function" "`lighter ls --versions` lists the versions kept";
    2003 ImageUnknown 404 "no image with this hash" "upload it first";
    2004 ImageNotWasm 422 "the image is not a wasm component" "build a component: `lighter build` makes one from a core module";
    2005 ImageTooLarge 413 "the image is too large" "make it smaller, by leaving out debug information for instance, or raise image_bytes_max of the node";
    2006 ImageHash 422 "the image does not have the hash it was announced with" "upload it again";
    2007 WorldMismatch 422 "the component does not fit the contract" "export lighter:unit/handler or wasi:http/incoming-handler";
    2008 ImportUnknown 422 "the component imports something this node does not offer" "this node offers lighter:unit, wasi:http, wasi:keyvalue, wasi:config, wasi:logging and WASI 0.2";
    2009 CompileFailed 422 "the component did not compile" "see what `wasm-tools validate` says of it; build it without features that wasm has only as proposals";
    2010 RouteTaken 409 "the route belongs to another function" "choose another route, or remove the other function first";
    2011 IsolationUnknown 422 "this node does not offer this isolation class" "choose one that the node has";
    2012 DeployBusy 409 "a deployment of this function is already running" "wait for it to end";
    2013 StartFailed 422 "the component traps when it is instantiated" "look at what runs before the first call: start functions, and code of a module outside of its functions";
    2014 BundleInvalid 422 "the image is not a bundle" "`lighter build` makes one of Python files";
    2015 BaseMismatch 422 "the bundle does not fit the node's base" "use the same Python and packages on both sides, or add a requirements.lock to the bundle";
    2016 BaseUnavailable 500 "the base for this bundle cannot be made" "the node needs Python 3 with venv, room on its disk and, for packages, an index that it can reach";
    2017 DumpMissing 404 "the function has no core dump" "set units.dump = true, and let a unit trap";
    3001 TimeExceeded 504 "the call ran out of wall time" "raise limits.time_ms, or make the function faster";
    3002 CpuExceeded 504 "the call ran out of CPU time" "raise limits.cpu_ms, or make the function faster";
    3003 MemoryExceeded 500 "the unit ran out of memory" "raise limits.memory_bytes";
    3004 TableExceeded 500 "the unit ran out of table elements" "raise limits.table_elements";
    3005 StackExceeded 500 "the unit ran out of stack" "recursion is too deep";
    3006 BodyTooLarge 413 "the body is too large" "raise limits.body_bytes";
    3007 ConcurrencyExceeded 503 "too many calls at once" "raise limits.concurrency or limits.waiting, or call less often";
    3008 RateExceeded 429 "too many calls a second" "raise limits.rate_per_second, or call less often";
    3009 WaitExceeded 503 "the call waited too long for its turn" "raise limits.wait_ms or limits.concurrency";
    3010 NodeFull 503 "the node has no room for another unit" "raise units_max of the node";
    3011 ReplyTooLarge 500 "the reply is too large" "stream it with wasi:http, or reply with less";
    3012 ProcessesExceeded 500 "the unit started too many processes" "raise limits.processes";
    4001 RouteUnknown 404 "no function has this route" "`lighter ls` lists the routes";
    4002 MethodNotAllowed 405 "the route does not take this method" "use one of the methods that `allow` in the reply lists";
    4003 RequestMalformed 400 "the request is not valid HTTP" "use a client that keeps to HTTP/1.1 or HTTP/2 and sends its body to the end";
    4004 TokenMissing 401 "a token is needed" "send `authorization: Bearer TOKEN`; `lighter token create` makes one";
    4005 TokenInvalid 401 "the token is not valid" "`lighter token create` makes a new one";
    4006 ScopeMissing 403 "the token does not allow this" "use a token with the scope that is needed";
    4007 HostRefused 421 "the request is addressed to another host" "ask the API from a program: it answers no web page of another site";
    4008 ApiUnknown 404 "the API has no such path" "GET /v1/openapi.json describes the API";
    4009 ApiRequest 400 "the API request is not right" "GET /v1/openapi.json describes the API";
    4010 Draining 503 "the node is shutting down" "try again in a moment";
    4011 HeadersTooLarge 431 "the request headers are too large" "send fewer or smaller headers: 100 at most, and 64 KiB of them";
    4012 RequestTimeout 408 "the request took too long to arrive" "send it sooner and faster; a body may take limits.time_ms of the function";
    4013 TokenUnknown 404 "no token of this name" "`lighter token ls` lists the tokens";
    4014 SecretUnknown 404 "no secret of this name" "`lighter secret ls` lists the secrets";
    5001 DataLocked 409 "another node uses this data folder" "stop it, or choose another folder with --data";
    5002 DataUnusable 500 "the data folder cannot be used" "name a folder that the node's user may write with --data";
    5003 DiskFull 507 "the disk is full" "free some space; reads go on meanwhile";
    5004 DiskFailed 500 "the disk reported an error" "look at the kernel log; reads go on where they can";
    5005 Conflict 503 "another handling changed the same keys" "try again";
    5006 ArtefactCorrupt 500 "a stored file does not have the hash it should" "deploy the function again";
    5007 StateCorrupt 500 "the stored state cannot be read" "restore the data folder from a backup";
    5008 StateBusy 503 "the disk cannot keep up with the writes" "try again in a moment, or write less";
    5009 KeyUnknown 404 "no such key" "`lighter store ls BUCKET` lists the keys";
    5010 BucketUnknown 404 "no bucket of this name" "`lighter store ls` lists the buckets";
    6001 UnitTrapped 500 "the unit trapped" "`lighter logs` has the backtrace; `lighter dump` the core, when asked for";
    6002 UnitNoReply 500 "the unit ended without a reply" "set a reply on every way out, errors too; `lighter logs` has what the function wrote";
    6003 UnitInvalid 422 "the function says the event can never be handled" "send what the function expects: sending the same again does not help";
    6004 UnitRetry 503 "the function asks to try again later" "try again later; events of a queue are tried again without you";
    6005 UnitFatal 500 "the function failed" "`lighter logs` has what the function wrote";
    6006 UnitBadReply 502 "the unit's reply is not valid HTTP" "look at the status, headers and length that the function sets";
    6007 UnitExited 500 "the unit called exit" "return from the handler instead; `lighter logs` has what the function wrote";
    6008 JailIncomplete 503 "this machine cannot keep process units apart well enough" "`lighter up --allow-weaker-jail` goes on without what is missing";
    6009 UnitGarbled 500 "what the unit says makes no sense" "build it again with the tools that came with the node's version";
    6010 KvmUnavailable 503 "this machine cannot run microvm units" "give the node read and write access to /dev/kvm, or choose isolation = \"wasm\": it runs the same component";
    6011 ZygoteEnded 500 "the function was ended for what it did outside of its calls" "leave no thread or process at work when the module has been imported";
    6101 BoardUnknown 404 "no board of this name" "`lighter boards` lists them";
    6102 BoardMissing 503 "no board can take the call now" "`lighter boards` lists them with their state";
    6103 BoardLost 503 "the board went away" "its console says why; its watchdog starts it again";
    6104 BoardDistrusted 502 "the board is not trusted" "`lighter boards` says what it runs; `lighter flash` gives it a kernel this node trusts";
    6105 BoardRefused 502 "the board refuses" "its console says why; `lighter flash` gives it the kernel of this version";
    6106 BoardImage 400 "the board's image cannot be used" "name a kernel that this version has made for boards, or none: one comes with the program";
    7001 QueueUnknown 404 "no queue of this name" "`lighter queue ls` lists the queues";
    7002 QueueFull 503 "the queue is full" "raise events_max or bytes_max of the queue, or handle its events faster";
    7003 EventInvalid 400 "the event is not valid" "as CloudEvents 1.0 says, an event has id, source and type, and attributes with names of a-z and 0-9";
    7004 EventTooLarge 413 "the event is too large" "push less at once; keep what is large in the store, and push its key";
    7005 LeaseLost 409 "the lease of the event ended before it was handled" "raise limits.time_ms, or make the function faster";
    7006 EventUnknown 404 "no such event" "it was handled or removed, or its time was over";
    7007 BucketFull 507 "the bucket is full" "raise keys_max or bytes_max of the bucket, or delete what is not needed";
    7008 WorkflowEnded 503 "the workflow has ended because a queue of it was full" "deploy it again to go on";
    7009 SinkFailed 502 "the sink could not deliver the event" "see that the receiver is there and takes it; what is given up is kept as a dead letter, `lighter queue dead`";
    7010 ResultsFull 503 "the function has as many results as it may" "a result makes room an hour after its call has ended; keep large ones in the store";
    8001 NoNode 503 "the call may run on a node only, and there is none" "name one with LIGHTERAGE_NODES or connect()";
    8002 ReplyBroken 502 "the reply of the node broke off or makes no sense" "call again where running twice does no harm: the function may have run";
    8003 VersionsDiffer 409 "the Python or a package of the node differs from the one here" "name what the function needs with lock, or accept it with any_version";
    8004 DoesNotTravel 400 "an object or a function has no meaning on another machine" "pass plain data; open files, sockets and locks within the function";
    8005 TimeIsUp 504 "the call did not end in its time" "raise its time or its deadline";
    8006 RemoteError 500 "the function raised an exception whose class is not known here" "an exception arrives as itself where the module of its class can be imported";
    8007 CallTooLarge 413 "arguments or result are larger than a call may be" "raise body_bytes of the function";
    9001 Internal 500 "the node failed" "please report this with the node's log";
    9002 Unknown 500 "an error this program does not know" "update it to the version of the node";
    9003 ConfigInvalid 400 "the node's configuration is not right" "`lighter up --help` lists the options with their bounds";
    9004 ListenFailed 500 "the address cannot be listened on" "where the port is taken, perhaps by another node, choose another one: --http, --api, --mqtt";
    9005 InsecureListen 400 "listening beyond this machine needs TLS" "give --tls-cert and --tls-key, or keep to 127.0.0.1";
    9006 Interrupted 499 "interrupted" "";
}

impl Code {
    /// Reads `L1001`.
    pub fn from_name(name: &str) -> Option<Self> {
        let number: u16 = name.strip_prefix('L')?.parse().ok()?;
        Self::ALL.iter().copied().find(|code| *code as u16 == number)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{:04}", *self as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contracts/errors.toml");

    fn written() -> String {
        let mut text = String::from(
            "# Every error code a user can see. Written from crates/problem/src/codes.rs: do not edit.\n\
             # To write it anew: LIGHTER_UPDATE=1 cargo test -p problem\n",
        );
        for code in Code::ALL {
            text +=
                &format!("\n[{code}]\nname = \"{code:?}\"\nstatus = {}\ntitle = {:?}\n", code.status(), code.title());
            if !code.hint().is_empty() {
                text += &format!("hint = {:?}\n", code.hint());
            }
        }
        text
    }

    #[test]
    fn the_contract_lists_exactly_these_codes() {
        if std::env::var_os("LIGHTER_UPDATE").is_some() {
            std::fs::write(FILE, written()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(FILE).unwrap(), written(), "run LIGHTER_UPDATE=1 cargo test -p problem");
    }

    #[test]
    fn every_code_says_what_helps() {
        // Who interrupts knows why.
        let without: Vec<Code> = Code::ALL.iter().copied().filter(|code| code.hint().is_empty()).collect();
        assert_eq!(without, [Code::Interrupted]);
    }

    #[test]
    fn a_code_reads_back_from_its_name() {
        for code in Code::ALL {
            assert_eq!(Code::from_name(&code.to_string()), Some(*code));
        }
        assert_eq!(Code::from_name("L0000"), None);
        assert_eq!(Code::from_name("nonsense"), None);
    }
}
