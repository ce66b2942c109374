//! Reason codes of MQTT 5, and the return codes of 3.1.1 they correspond to.

use std::fmt;

/// A reason code. 0x80 and above are failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reason(pub u8);

macro_rules! reasons {
    ($($name:ident $number:literal $text:literal;)*) => {
        impl Reason {
            $(#[doc = $text] pub const $name: Self = Self($number);)*

            /// What it says, in words.
            pub const fn text(self) -> &'static str {
                match self.0 { $($number => $text,)* _ => "an unknown reason" }
            }
        }
    };
}

reasons! {
    SUCCESS 0x00 "success";
    DISCONNECT_WITH_WILL 0x04 "disconnect with will message";
    NO_SUBSCRIBERS 0x10 "no matching subscribers";
    NO_SUBSCRIPTION 0x11 "no subscription existed";
    UNSPECIFIED 0x80 "unspecified error";
    MALFORMED 0x81 "malformed packet";
    PROTOCOL_ERROR 0x82 "protocol error";
    NOT_ACCEPTED 0x83 "implementation specific error";
    VERSION 0x84 "unsupported protocol version";
    CLIENT_ID 0x85 "client identifier not valid";
    BAD_USER 0x86 "bad user name or password";
    NOT_AUTHORIZED 0x87 "not authorized";
    UNAVAILABLE 0x88 "server unavailable";
    BUSY 0x89 "server busy";
    SHUTTING_DOWN 0x8b "server shutting down";
    BAD_METHOD 0x8c "bad authentication method";
    KEEP_ALIVE 0x8d "keep alive timeout";
    TAKEN_OVER 0x8e "session taken over";
    FILTER_INVALID 0x8f "topic filter invalid";
    TOPIC_INVALID 0x90 "topic name invalid";
    ID_IN_USE 0x91 "packet identifier in use";
    ID_UNKNOWN 0x92 "packet identifier not found";
    RECEIVE_MAXIMUM 0x93 "receive maximum exceeded";
    TOPIC_ALIAS 0x94 "topic alias invalid";
    PACKET_TOO_LARGE 0x95 "packet too large";
    QUOTA_EXCEEDED 0x97 "quota exceeded";
    ADMINISTRATIVE 0x98 "administrative action";
    FORMAT_INVALID 0x99 "payload format invalid";
    RETAIN_UNSUPPORTED 0x9a "retain not supported";
    QOS_UNSUPPORTED 0x9b "QoS not supported";
}

impl Reason {
    pub const fn is_failure(self) -> bool {
        self.0 >= 0x80
    }

    /// The return code of a CONNACK of version 3.1.1; none if the connection is simply closed.
    pub const fn connack_311(self) -> Option<u8> {
        match self {
            Self::SUCCESS => Some(0),
            Self::VERSION => Some(1),
            Self::CLIENT_ID => Some(2),
            Self::UNAVAILABLE | Self::BUSY | Self::QUOTA_EXCEEDED => Some(3),
            // 4 is for a name or password that is malformed.
            Self::BAD_USER | Self::NOT_AUTHORIZED => Some(5),
            _ => None,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "0x{:02x} {}", self.0, self.text())
    }
}
