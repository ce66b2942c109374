//! Every code a user can see. A number is never reused; texts may improve.
//!
//! L1xxx manifest and command line · L2xxx images and deployment · L3xxx limits · L4xxx HTTP and access ·
//! L5xxx state and disk · L6xxx units · L7xxx events · L8xxx offloading, said by SDKs · L9xxx the node itself, L91xx
//! its fleet.

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
    1001 ManifestMissing 400 "no manifest" "begin one with `lighter new`, or name the folder that holds lighter.toml";
    1002 ManifestSyntax 400 "the manifest is not valid TOML" "look at the place it names: text needs quotes, and each key or table may appear only once";
    1003 ManifestUnknownKey 400 "unknown key in the manifest" "`lighter schema` prints every key";
    1004 ManifestValue 400 "a value in the manifest is out of range or of the wrong type" "`lighter schema` prints every key with its bounds";
    1005 ManifestConflict 400 "two parts of the manifest contradict each other" "change one of the two";
    1101 Usage 400 "the command line is not right" "add --help for the options";
    1102 NodeUnreachable 503 "no node answers" "start one with `lighter up`, or name one with --node or LIGHTER_NODE";
    1103 ToolMissing 400 "a tool that is needed is not installed" "install it, and check that PATH contains its folder";
    1104 BuildFailed 400 "the function did not build" "the output of the build is above";
    1105 FolderNotEmpty 400 "the folder is not empty" "choose another name, or an empty folder";
    1106 ImageMissing 400 "the image named in the manifest is not there" "make it with `lighter build`, or build and deploy with `lighter deploy --build`";
    1107 FileUnusable 400 "a file cannot be read or written" "check that it exists, and that you may read and write it";
    1108 LinkLeaves 400 "a link leads out of the folder" "put a copy in its place; for an image, you can write its real path in the manifest";
    1109 NodeUnproven 502 "what listens there is not the node of the data folder" "if the node has ended, start it again with `lighter up`; if another program has its port now, choose another port with --api";
    1110 SignatureMissing 403 "nobody has signed the release" "the signature is the file FILE.minisig beside it: fetch it too";
    1111 SignatureWrong 403 "the signature of the release is not right" "fetch the release and its signature again; name the releaser's public key with --key";
    1112 ReleaseBroken 422 "the file is not a release" "name a lighter-VERSION-PROCESSOR-linux.tar.gz, and fetch it again if it is one";
    1113 ReleaseElsewhere 422 "the release is for another machine" "`lighter version` says which processor this machine has";
    1114 ReleaseOlder 409 "the release is older than this program" "--allow-older installs it anyway; `lighter upgrade --rollback` goes back to the previous program";
    1115 ReleaseMigrates 409 "the release changes the format of the stored data" "--backup FILE makes a backup first, which is the only way back; with --passphrase-file it holds secrets and keys too";
    1116 UpgradeUndone 500 "the upgrade was undone" "see the node's log for what the new program said";
    1117 RollbackMissing 409 "there is no program to go back to" "an upgrade keeps the previous program; to go back with a package, use its package manager";
    1118 ProgramPackaged 409 "the program belongs to a package" "upgrade the package";
    2001 FunctionUnknown 404 "no function of this name" "`lighter ls` lists the functions";
    2002 VersionUnknown 404 "no such version of this function" "`lighter ls --versions` lists the versions kept";
    2003 ImageUnknown 404 "no image with this hash" "upload it first";
    2004 ImageNotWasm 422 "the image is not a wasm component" "build a component: `lighter build` makes one from a core module";
    2005 ImageTooLarge 413 "the image is too large" "make it smaller, for instance without debug information, or raise image_bytes_max of the node";
    2006 ImageHash 422 "the image does not have the hash it was announced with" "upload it again";
    2007 WorldMismatch 422 "the component does not fit the contract" "export lighter:unit/handler or wasi:http/incoming-handler; in the class wasm also wasi:http/handler";
    2008 ImportUnknown 422 "the component imports something this node does not offer" "this node offers lighter:unit, wasi:http, wasi:keyvalue, wasi:config, wasi:logging and WASI 0.2; to wasi:http/handler also WASI 0.3";
    2009 CompileFailed 422 "the component did not compile" "check it with `wasm-tools validate`; build it without wasm features that are only proposals";
    2010 RouteTaken 409 "the route belongs to another function" "choose another route, or remove the other function first";
    2011 IsolationUnknown 422 "this node does not offer this isolation class" "choose a class that the node offers";
    2012 DeployBusy 409 "a deployment of this function is already running" "wait for it to end";
    2013 StartFailed 422 "the component traps when it is instantiated" "look at the code that runs before the first call: start functions, and module code outside of functions";
    2014 BundleInvalid 422 "the image is not a bundle" "make one from Python files with `lighter build`";
    2015 BaseMismatch 422 "the bundle does not fit the node's base" "use the same Python and packages on both sides, or add a requirements.lock to the bundle";
    2016 BaseUnavailable 500 "the base for this bundle cannot be made" "the node needs Python 3 with venv, free disk space and, for packages, an index that it can reach";
    2017 DumpMissing 404 "the function has no core dump" "set units.dump = true: the next unit that traps leaves a dump";
    2019 CompileTooLong 422 "compiling took too long" "split large functions in the component, or raise compile_cpu_seconds_max of the node";
    2020 CompileTooLarge 422 "compiling took too much memory" "split large functions in the component, or raise memory_bytes_max of the node";
    2031 BaseInvalid 422 "the file is not a base" "export it again with `lighter base export`, and compare the ids";
    2032 ApiMissing 422 "the function uses something that its base does not have" "docs/android.md lists the classes that work; the rest of the app may use anything";
    2033 HandlerForeign 422 "the handler needs something that a unit does not have" "docs/compatibility.md lists what is not carried over, and what helps";
    2034 UnitUnknown 404 "no such unit" "`lighter ps` lists the units that exist now";
    2035 UnitGone 409 "the unit ended before it was seen" "most calls are over in a moment: `lighter ps` shows those that last";
    2036 AttachRefused 422 "nobody can attach to this unit" "docs/debugging.md says what each class shows of a unit at work";
    3001 TimeExceeded 504 "the call ran out of wall time" "raise limits.time_ms, or make the function faster";
    3002 CpuExceeded 504 "the call ran out of CPU time" "raise limits.cpu_ms, or make the function faster";
    3003 MemoryExceeded 500 "the unit ran out of memory" "raise limits.memory_bytes";
    3004 TableExceeded 500 "the unit ran out of table elements" "raise limits.table_elements";
    3005 StackExceeded 500 "the unit ran out of stack" "make the recursion less deep";
    3006 BodyTooLarge 413 "the body is too large" "raise limits.body_bytes";
    3007 ConcurrencyExceeded 503 "too many calls at once" "raise limits.concurrency or limits.waiting, or call less often";
    3008 RateExceeded 429 "too many calls a second" "raise limits.rate_per_second, or call less often";
    3009 WaitExceeded 503 "the call waited too long for its turn" "raise limits.wait_ms or limits.concurrency";
    3010 NodeFull 503 "the node has no room for another unit" "try again in a moment, or raise units_max or memory_bytes_max of the node";
    3011 ReplyTooLarge 500 "the reply is too large" "stream it with wasi:http, or reply with less";
    3012 ProcessesExceeded 500 "the unit started too many processes" "raise limits.processes";
    3013 MemoryFull 503 "the node has no memory left for this" "try again in a moment, or raise memory_bytes_max of the node; the metric `lighter_memory_bytes` shows where its memory is";
    4001 RouteUnknown 404 "no function has this route" "`lighter ls` lists the routes";
    4002 MethodNotAllowed 405 "the route does not take this method" "use one of the methods in the `allow` header of the reply";
    4003 RequestMalformed 400 "the request is not valid HTTP" "use a client that follows HTTP/1.1 or HTTP/2 and sends its whole body";
    4004 TokenMissing 401 "a token is needed" "send `authorization: Bearer TOKEN`; `lighter token create` makes one";
    4005 TokenInvalid 401 "the token is not valid" "`lighter token create` makes a new one";
    4006 ScopeMissing 403 "the token does not allow this" "use a token with the required scope";
    4007 HostRefused 421 "the request is addressed to another host" "call the API from a program: it does not answer web pages of other sites";
    4008 ApiUnknown 404 "the API has no such path" "GET /v1/openapi.json describes the API";
    4009 ApiRequest 400 "the API request is not right" "GET /v1/openapi.json describes the API";
    4010 Draining 503 "the node is shutting down" "try again in a moment";
    4011 HeadersTooLarge 431 "the request headers are too large" "send fewer or smaller headers: at most 100, and 64 KiB in all";
    4012 RequestTimeout 408 "the request took too long to arrive" "send it sooner and faster; a body may take as long as limits.time_ms of the function";
    4013 TokenUnknown 404 "no token of this name" "`lighter token ls` lists the tokens";
    4014 SecretUnknown 404 "no secret of this name" "`lighter secret ls` lists the secrets";
    4015 MqttSessionUnknown 404 "no MQTT session of this client and user" "`lighter mqtt sessions ls` lists the sessions";
    5001 DataLocked 409 "another node uses this data folder" "stop that node, or choose another folder with --data-folder";
    5002 DataUnusable 500 "the data folder cannot be used" "use --data-folder to name a folder that the node's user may write to";
    5003 DiskFull 507 "the disk is full" "free some space; reads still work";
    5004 DiskFailed 500 "the disk reported an error" "look at the kernel log; reads go on where possible";
    5005 Conflict 503 "another handling changed the same keys" "try again";
    5006 ArtefactCorrupt 500 "a stored file does not have the hash it should" "deploy the function again";
    5007 StateCorrupt 500 "the stored state cannot be read" "restore the data folder from a backup";
    5008 StateBusy 503 "the disk cannot keep up with the writes" "try again in a moment, or write less";
    5009 KeyUnknown 404 "no such key" "`lighter store ls BUCKET` lists the keys";
    5011 FilesExhausted 503 "the node has no files left to open" "use fewer connections, or raise the limit of open files (ulimit -n; LimitNOFILE of the service) and restart the node";
    5020 DataNewer 409 "the data folder was written by a newer version" "use that version of lighter or a newer one; you can restore an earlier backup into another folder";
    5021 BackupBroken 422 "the backup is cut short or damaged" "copy it again, or use another one; nothing was restored";
    5022 BackupNewer 422 "the backup is of a newer format" "restore it with the version of lighter that made it, or a newer one";
    5023 BackupSealed 403 "the backup's secrets need its passphrase" "--passphrase-file names a file with the passphrase it was made with; --without-secrets restores the rest";
    5024 RestoreUnfinished 409 "a restore into the data folder has not ended" "run `lighter restore` again: it begins anew; to give it up, remove `restoring`, `warehouse`, `fleet` and `boards` in the data folder";
    5010 BucketUnknown 404 "no bucket of this name" "`lighter store ls` lists the buckets";
    6001 UnitTrapped 500 "the unit trapped" "`lighter logs` has the backtrace; `lighter dump` has the core if units.dump is set";
    6002 UnitNoReply 500 "the unit ended without a reply" "set a reply on every path, errors included; `lighter logs` has the output of the function";
    6003 UnitInvalid 422 "the function says the event can never be handled" "send what the function expects; sending the same event again does not help";
    6004 UnitRetry 503 "the function asks to try again later" "try again later; events of a queue are retried automatically";
    6005 UnitFatal 500 "the function failed" "`lighter logs` has the output of the function";
    6006 UnitBadReply 502 "the unit's reply is not valid HTTP" "look at the status, headers and length that the function sets";
    6007 UnitExited 500 "the unit called exit" "return from the handler instead; `lighter logs` has the output of the function";
    6008 JailIncomplete 503 "this machine cannot keep process units apart well enough" "`lighter up --allow-weaker-jail` runs without the missing protections";
    6009 UnitGarbled 500 "the node cannot understand what the unit sends" "build it again with the tools of the node's version";
    6010 KvmUnavailable 503 "this machine cannot run microvm units" "give the node read and write access to /dev/kvm, or choose isolation = \"wasm\": it runs the same component";
    6011 ZygoteEnded 500 "the function was ended because of what it did outside of its calls" "leave no thread or process running after the module is imported";
    6101 BoardUnknown 404 "no board of this name" "`lighter boards` lists them";
    6102 BoardMissing 503 "no board can take the call now" "`lighter boards` lists them with their state";
    6103 BoardLost 503 "the board went away" "its console says why; its watchdog starts it again";
    6104 BoardDistrusted 502 "the board is not trusted" "`lighter boards` shows its kernel; `lighter flash` gives it one that this node trusts";
    6105 BoardRefused 502 "the board refuses" "its console says why; `lighter flash` gives it the kernel of this version";
    6106 BoardImage 400 "the board's image cannot be used" "name a board kernel of this version, or none: the program contains one";
    7001 QueueUnknown 404 "no queue of this name" "`lighter queue ls` lists the queues";
    7002 QueueFull 503 "the queue is full" "raise events_max or bytes_max of the queue, or handle its events faster";
    7003 EventInvalid 400 "the event is not valid" "CloudEvents 1.0 requires id, source and type, and attribute names of a-z and 0-9";
    7004 EventTooLarge 413 "the event is too large" "push less at once; keep large data in the store, and push its key";
    7005 LeaseLost 409 "the lease of the event ended before it was handled" "raise limits.time_ms, or make the function faster";
    7006 EventUnknown 404 "no such event" "it was handled or removed, or it expired";
    7007 BucketFull 507 "the bucket is full" "raise keys_max or bytes_max of the bucket, or delete keys";
    7008 WorkflowEnded 503 "the workflow has ended because one of its steps could not keep up" "deploy it again to go on";
    7009 SinkFailed 502 "the sink could not deliver the event" "check that the receiver is up and accepts the event; events that are given up are dead letters, see `lighter queue dead`";
    7010 ResultsFull 503 "the function has as many results as it may keep" "a result is removed an hour after its call has ended; keep large results in the store";
    7011 NodeEnded 500 "the node ended while it handled the event" "the function may have used up the machine's memory, or the node may have a fault: look at the kernel's log before you replay the event";
    7012 LeasesFull 503 "workers outside of the node have as many events as they may" "ack or fail leased events, or lease fewer at once; leases that are not renewed end by themselves";
    8001 NoNode 503 "the call may run only on a node, and there is none" "name one with LIGHTERAGE_NODES or connect()";
    8002 ReplyBroken 502 "the reply of the node broke off or makes no sense" "call again if running twice does no harm: the function may already have run";
    8003 VersionsDiffer 409 "the node's Python or one of its packages differs from the one here" "name the packages that the function needs with lock, or accept the difference with any_version";
    8004 DoesNotTravel 400 "an object or a function has no meaning on another machine" "pass plain data; open files, sockets and locks within the function";
    8005 TimeIsUp 504 "the call did not end in time" "raise the call's time limit or its deadline";
    8006 RemoteError 500 "the function raised an exception of a class that is unknown here" "install the module of that class here: the exception then arrives as itself";
    8007 CallTooLarge 413 "arguments or result are larger than a call may carry" "raise body_bytes of the function";
    8008 OnMainThread 409 "a call on the main thread of an application would freeze its screen" "use submit, or call from another thread";
    9001 Internal 500 "the node failed" "please report this with the node's log";
    9002 Unknown 500 "this program does not know the error" "update the program to the version of the node";
    9003 ConfigInvalid 400 "the node's configuration is not right" "`lighter up --help` lists the options with their bounds";
    9004 ListenFailed 500 "the node cannot listen on the address" "if another program, perhaps a node, has the port, choose another one: --http, --api, --mqtt";
    9005 InsecureListen 400 "listening beyond this machine needs TLS" "give --tls-cert and --tls-key, or listen on 127.0.0.1";
    9006 Interrupted 499 "interrupted" "";
    9101 FleetUnknown 503 "the node that answers belongs to another fleet" "ask for a new invitation; if the address is right, somebody may stand between";
    9102 NotAdmitted 403 "the fleet does not admit this node" "ask for an invitation on an anchor";
    9103 EngineMissing 503 "an anchor has no engine" "put nats-server 2.14 or later into DATA/bin or PATH";
    9104 EngineUnsound 503 "the engine of the fleet does not run properly" "look at fleet/nats.log in the data folder; the node starts it again";
    9105 AnchorsAway 503 "no anchor of the fleet answers" "check that an anchor is up and that this machine reaches its address; calls go on meanwhile, for two weeks at least";
    9106 InvitationGarbled 400 "the text is not an invitation" "copy it whole: it begins with lighter-join-1.";
    9107 InvitationUnknown 403 "no such invitation" "ask for a new one: this one was taken back, or belongs to another fleet";
    9108 InvitationEnded 403 "the invitation has ended" "ask for a new one";
    9109 InvitationUsed 403 "the invitation is used up" "ask for a new one; an invitation can be made for several nodes";
    9110 NothingFits 409 "no node of the fleet fits" "change `place.where` or the label of a node: `lighter up --label KEY=VALUE`";
    9111 NodeRevoked 403 "the node was taken out of the fleet" "to let it come back, delete its folder `fleet` and join with a new invitation";
    9112 NodeDoubled 409 "two machines run with the key of one node" "one of the two data folders is a copy: stop that machine, delete its folder `fleet`, and join as a new node";
    9113 FleetMessage 400 "the other side sent something that it may not send" "check that both sides run the same version";
    9114 AnchorBusy 503 "the anchor is too busy" "try again in a few seconds";
    9115 CertificateEnded 403 "a node's certificate has ended, or ends soon" "it is renewed when the node reaches an anchor; check the clocks of both machines";
    9116 NoFleet 409 "the node belongs to no fleet" "`lighter fleet new NAME` founds one here, `lighter fleet join TOKEN` joins one";
    9117 FleetAlready 409 "the node belongs to a fleet already" "a node belongs to one fleet at a time: `lighter fleet leave` leaves it";
    9118 NotAnchor 409 "the node is not an anchor of its fleet" "do this on an anchor: `lighter fleet` shows which node is one";
    9119 MemberUnknown 404 "the fleet has no such node" "`lighter fleet` lists its nodes, with their ids and names";
    9120 CallsRefused 503 "no node of the fleet takes the call" "the call did not run: try again in a moment";
    9121 CallLost 502 "the node that ran the call is gone" "the call may have run: repeat it only if running twice does no harm";
    9122 MemberAway 503 "the node that has the function cannot be reached" "the call did not run; `lighter fleet` shows who is there";
    9123 CallLooped 508 "the call was sent from node to node twice" "check that all nodes run the same version";
    9124 DrainUnfinished 409 "work still runs on the node" "wait longer with --for; `lighter ps` shows what runs, and `lighter down` ends it";
    9125 AnchorsSeveral 409 "several fleets answer on this network" "name the anchor of the right one: `lighter fleet join --at HOST:PORT`";
    9130 DeployerUnknown 403 "the fleet does not know the key of the deployer" "`lighter fleet deployer add NAME` on an anchor makes one; name its file with --deployer";
    9131 DeploymentGarbled 400 "the message is not a deployment of this fleet" "check that both sides run the same version";
    9132 DeploymentChanged 409 "another deployment of the same name came first" "look at what runs now, and deploy again";
    9133 DeploymentUnknown 404 "the fleet has no such deployment" "`lighter fleet deployments` lists them";
    9134 DeploymentFull 409 "the fleet has no room for the deployment" "remove one that is not needed: `lighter fleet undeploy NAME`";
    9135 HomeHeld 409 "the state of a function cannot move" "leave its place as it was: the state stays on its node";
    9136 FleetDeployed 409 "it belongs to a deployment of the fleet" "change it there: `lighter deploy --fleet`";
    9137 ImageNowhere 503 "no node that can be reached has the image" "the node keeps looking for it; `lighter deploy --fleet` sends it again";
    9138 RolloutFailed 409 "a new form of a deployment failed, and the fleet went back" "the nodes run the previous form; repair the function and deploy again";
    9301 MailWaits 503 "events wait for another node" "nothing is lost: they go on when the node that is their home can take them; `lighter fleet` shows how many wait for which node";
    9302 LetterTooLarge 413 "the event is too large to go to another node" "events for a queue with a home on another node have at most 512 KiB, attributes included: keep the data in a bucket and push its key";
    9303 LettersGone 500 "events on their way were lost with a disk" "a node was restored from a backup; the events that it took since then are gone, with everything else it did";
    9304 HomeGone 410 "the home of the queue was taken out of the fleet" "name another home and deploy, or let a node of that name join; then `lighter queue replay` sends its dead letters";
}

impl Code {
    /// Whether the details of such a problem say what the caller sent, and nothing of functions, files or the node.
    pub const fn speaks_of_the_request(self) -> bool {
        use Code::{
            BodyTooLarge, EventInvalid, EventTooLarge, EventUnknown, HeadersTooLarge, MethodNotAllowed,
            RequestMalformed, RequestTimeout, RouteUnknown, ScopeMissing, TokenInvalid, TokenMissing,
        };
        matches!(
            self,
            BodyTooLarge
                | RouteUnknown
                | MethodNotAllowed
                | RequestMalformed
                | TokenMissing
                | TokenInvalid
                | ScopeMissing
                | HeadersTooLarge
                | RequestTimeout
                | EventInvalid
                | EventTooLarge
                | EventUnknown
        )
    }

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
